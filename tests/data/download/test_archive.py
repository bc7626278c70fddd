from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from gradpivot.data.download.archive import gunzipped, read_members
from gradpivot.errors import GradPivotError
from made_data import deb, tar, zipped

FILES = {"a.bin": b"a" * 1000, "b.bin": bytes(range(256)) * 10, "other": b"x"}
WANTED = {"a.bin": 1000, "b.bin": 5000}
PACKED = [zipped(FILES), tar(FILES), deb(FILES)]


def written(folder: Path, content: bytes, name: str = "archive") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        zipped(FILES, "package/"),
        *(tar(FILES, "package/", mode) for mode in ("w", "w:gz", "w:xz", "w:bz2")),
        *(deb(FILES, ending=ending) for ending in ("gz", "xz", "bz2")),
    ],
    ids=["zip", "tar", "tgz", "txz", "tbz2", "deb-gz", "deb-xz", "deb-bz2"],
)
def test_only_the_named_members_are_read(content, tmp_path):
    found = read_members(written(tmp_path, content), WANTED)
    assert found == {"a.bin": FILES["a.bin"], "b.bin": FILES["b.bin"]}
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("pack", [zipped, tar, deb])
def test_archives_cut_short_are_refused_in_one_line(pack, tmp_path):
    content = pack(FILES)
    for share in (0.2, 0.5, 0.9):
        with pytest.raises(GradPivotError, match="archive") as error:
            read_members(written(tmp_path, content[: int(share * len(content))]), WANTED)
        assert "\n" not in str(error.value)


@given(st.binary(max_size=400), st.sampled_from([b"", b"PK\3\4", b"\x1f\x8b", b"!<arch>\n", b"\xfd7zXZ\0", b"BZh"]))
def test_noise_is_refused(tmp_path_factory, noise, magic):
    path = written(tmp_path_factory.getbasetemp(), magic + noise, "noise")
    with pytest.raises(GradPivotError, match="noise"):
        read_members(path, WANTED)


@given(st.data())
def test_a_changed_byte_gives_an_error_or_the_same_names(tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from(PACKED)))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = read_members(written(tmp_path_factory.getbasetemp(), bytes(content), "changed"), WANTED)
    except GradPivotError:
        return
    assert set(found) <= set(WANTED)


def test_a_zip_whose_members_lie_before_its_start_is_damaged(tmp_path):
    """The end record says where the directory is; members are found by how far it is from there."""
    content = bytearray(zipped(FILES))
    content[-6] ^= 1
    with pytest.raises(GradPivotError, match="archive is damaged or truncated"):
        read_members(written(tmp_path, bytes(content)), WANTED)


@pytest.mark.parametrize("name", ["../a.bin", "/etc/a.bin", "x/../../a.bin", "..\\a.bin", "C:\\a.bin", "../other"])
@pytest.mark.parametrize("pack", [zipped, tar])
def test_names_that_lead_out_are_refused(pack, name, tmp_path):
    with pytest.raises(GradPivotError, match="leaves the archive"):
        read_members(written(tmp_path, pack({name: b"x"})), WANTED)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind, tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.bin")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(GradPivotError, match="is a link or a device"):
        read_members(written(tmp_path, file.getvalue()), WANTED)


def test_links_in_a_zip_are_refused(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        member = zipfile.ZipInfo("a.bin")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(GradPivotError, match="is a link or a device"):
        read_members(written(tmp_path, file.getvalue()), WANTED)


@pytest.mark.parametrize("pack", [zipped, tar, deb])
def test_members_larger_than_they_can_be_are_refused(pack, tmp_path):
    with pytest.raises(GradPivotError, match=r"a\.bin in archive is too large; the limit is 1,000 bytes"):
        read_members(written(tmp_path, pack({"a.bin": b"0" * 1001})), WANTED)


def test_a_zip_that_declares_less_than_it_holds_is_refused(tmp_path):
    bomb = bytearray(zipped({"a.bin": b"0" * 1_000_000}))
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", bomb, bomb.index(signature) + offset, 500)
    with pytest.raises(GradPivotError, match="archive"):
        read_members(written(tmp_path, bytes(bomb)), WANTED)


@pytest.mark.parametrize("name", ["a.bin", "other"])
def test_a_bomb_is_refused_before_it_is_unpacked(name, tmp_path):
    bomb = tar({name: b"\0" * 5_000_000})
    assert len(bomb) < 100_000
    limits = {"a.bin": 10**9}
    with pytest.raises(GradPivotError, match="unpacks to more than 1,000,000 bytes"):
        read_members(written(tmp_path, bomb), limits, whole=1_000_000)


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gradpivot.data.download.archive._MEMBERS", 10)
    with pytest.raises(GradPivotError, match="more than 10 members"):
        read_members(written(tmp_path, tar({f"{i}": b"" for i in range(11)})), WANTED)


def test_a_sparse_member_that_is_mostly_holes_is_refused(tmp_path):
    member = tarfile.TarInfo("a.bin")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = tarfile.itn(900, 12, tarfile.GNU_FORMAT)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(GradPivotError, match="archive"):
        read_members(written(tmp_path, bytes(header) + bytes(1024)), WANTED)


@pytest.mark.parametrize("pack", [zipped, tar])
def test_the_same_name_twice_is_refused(pack, tmp_path):
    with pytest.raises(GradPivotError, match=r"contains a\.bin twice"):
        read_members(written(tmp_path, pack({"one/a.bin": b"1", "two/a.bin": b"2"})), WANTED)


def test_encrypted_zip_members_are_refused(tmp_path):
    content = bytearray(zipped({"a.bin": b"secret"}))
    content[content.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(GradPivotError, match="encrypted"):
        read_members(written(tmp_path, bytes(content)), WANTED)


def test_a_file_that_is_wanted_is_its_own_content(tmp_path):
    assert read_members(written(tmp_path, b"plain", "a.bin"), WANTED) == {"a.bin": b"plain"}
    with pytest.raises(GradPivotError, match="too large"):
        read_members(written(tmp_path, b"0" * 1001, "a.bin"), WANTED)


def test_a_missing_file_and_another_kind_of_file(tmp_path):
    with pytest.raises(GradPivotError, match="there is no file"):
        read_members(tmp_path / "nowhere.zip", WANTED)
    with pytest.raises(GradPivotError, match="not a supported archive"):
        read_members(written(tmp_path, b"hello"), WANTED)


def test_a_package_packed_with_zstd_is_unpacked_by_dpkg(client, tmp_path):
    path = written(tmp_path, deb(FILES).replace(b"data.tar.xz ", b"data.tar.zst"))
    with pytest.raises(GradPivotError, match="needs dpkg-deb, which is not installed; unpack it"):
        read_members(path, WANTED)
    written(tmp_path, tar(FILES, mode="w"), "unpacked.tar")
    client("dpkg-deb", f'[ "$1" = --fsys-tarfile ] && cat {tmp_path}/unpacked.tar')
    assert set(read_members(path, WANTED)) == set(WANTED)


def test_gunzipped_within_limits():
    assert gunzipped(gzip.compress(b"hello"), "x.gz", 5) == b"hello"
    with pytest.raises(GradPivotError, match="too large"):
        gunzipped(gzip.compress(b"hello!"), "x.gz", 5)
    for broken in (b"no gzip", gzip.compress(b"hello")[:-4]):
        with pytest.raises(GradPivotError, match=r"x\.gz is damaged"):
            gunzipped(broken, "x.gz", 5)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_packed_so_that_nobody_can_count_is_refused(method, tmp_path):
    """zipfile bounds what it unpacks for deflate alone: a kilobyte of bzip2 became a gigabyte."""
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.bin", b"\0" * 1000)
    with pytest.raises(GradPivotError, match="unsupported compression method"):
        read_members(path, WANTED)
