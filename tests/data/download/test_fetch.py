from __future__ import annotations

import errno
import gzip
import http.client
import os
import ssl
import sys

import pytest

from gradpivot.data.download import fetch
from gradpivot.data.download.catalogue import Download, Package
from gradpivot.data.download.fetch import UnreachableError, download, package_file
from made_data import digest

CONTENT = os.urandom(1_000_000)


@pytest.fixture
def wanted(server) -> Download:
    server.files["file.bin"] = CONTENT
    return Download(f"{server.url}/file.bin", digest(CONTENT, "md5"), 2_000_000)


def test_downloads_and_reports(wanted, tmp_path):
    seen = []
    path = download(wanted, tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (1_000_000, 1_000_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [one.name for one in tmp_path.iterdir()] == ["file.bin"]


def test_a_file_that_is_there_is_not_asked_for_again(wanted, server, tmp_path):
    download(wanted, tmp_path)
    download(wanted, tmp_path)
    assert len(server.asked) == 1
    (tmp_path / "file.bin").write_bytes(b"damaged")
    assert download(wanted, tmp_path).read_bytes() == CONTENT


def test_a_part_is_continued(wanted, server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    assert download(wanted, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300000-"]


def test_a_whole_part_needs_no_more_bytes(wanted, server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert download(wanted, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000000-"]


def test_a_server_that_cannot_continue_starts_from_the_beginning(wanted, server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    assert download(wanted, tmp_path).read_bytes() == CONTENT


def test_a_lost_connection_is_continued(wanted, server, tmp_path):
    server.cut = 400_000
    assert download(wanted, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=400000-", "bytes=800000-"]


def test_a_connection_lost_too_often_keeps_the_part(wanted, server, tmp_path):
    server.cut = 100_000
    with pytest.raises(UnreachableError, match="was lost 3 times"):
        download(wanted, tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 300_000
    server.cut = None
    assert download(wanted, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("error", [ssl.SSLError("bad record"), OSError(errno.EHOSTUNREACH, "No route to host")])
def test_a_network_that_fails_on_the_way_is_a_lost_connection(error, wanted, server, tmp_path, monkeypatch):
    """Not an error of the disk: the next source is tried, and what is there stays."""

    def failing(self, size):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(http.client.HTTPResponse, "read", failing)
        with pytest.raises(UnreachableError, match="was lost 3 times"):
            download(wanted, tmp_path)
    assert download(wanted, tmp_path).read_bytes() == CONTENT


def test_a_bad_part_is_thrown_away(wanted, server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 300_000)
    assert download(wanted, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300000-", None]


def test_another_file_is_refused(wanted, server, tmp_path):
    server.files["file.bin"] = b"<html>Please log in</html>"
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:\d+ serves a different file\.bin"):
        download(wanted, tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(server.asked) == 1


def test_more_bytes_than_the_file_can_have_are_refused(wanted, server, tmp_path):
    server.files["file.bin"] = bytes(2_000_001)
    with pytest.raises(UnreachableError, match=r"2,000,001 bytes as file\.bin; the limit is 2,000,000"):
        download(wanted, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", [403, 404, 503])
def test_an_error_of_the_server(status, wanted, server, tmp_path):
    server.status = status
    with pytest.raises(UnreachableError, match=f"answers {status}"):
        download(wanted, tmp_path)


def test_a_silent_server_is_given_up(wanted, server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    server.silent = True
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:\d+ (does not answer within 0\.2 s|cannot be reached)"):
        download(wanted, tmp_path)


def test_a_packed_file_stays_packed(server, tmp_path):
    """Some servers call the packing of a .gz file an encoding, which a client would undo."""
    packed = gzip.compress(CONTENT)
    server.files["file.gz"], server.encoding = packed, "gzip"
    wanted = Download(f"{server.url}/file.gz", digest(packed), 2_000_000)
    assert download(wanted, tmp_path).read_bytes() == packed


def test_nobody_there(tmp_path):
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 cannot be reached \(Connection refused\)$"):
        download(Download("http://127.0.0.1:1/file.bin", "md5:0", 1), tmp_path)


NPM = Package("npm", "carrier", "1.0", digest(b"archive\n"))


def test_npm_packs_into_a_folder_of_its_own(client, tmp_path):
    client("npm", f'echo "$@" > {tmp_path}/words; echo archive > carrier-1.0.tgz')
    with package_file(NPM, tmp_path) as path:
        assert path.read_bytes() == b"archive\n"
        assert path.parent.parent == tmp_path
    words = (tmp_path / "words").read_text().split()
    assert words[0] == "pack"
    assert "--ignore-scripts" in words
    assert words[-1] == "carrier@1.0"
    assert not path.exists()


def test_apt_downloads(client, tmp_path):
    client("apt-get", f'echo "$@" > {tmp_path}/words; echo archive > carrier_1.0.deb')
    with package_file(Package("apt", "carrier"), tmp_path) as path:
        assert path.name == "carrier_1.0.deb"
    assert (tmp_path / "words").read_text().split()[0] == "download"


def test_pip_downloads_wheels_only(client, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    client("pip", f'echo "$@" > {tmp_path}/words; echo archive > carrier-1.0.whl')
    with package_file(Package("pip", "carrier", "1.0", NPM.digest), tmp_path) as path:
        assert path.name == "carrier-1.0.whl"
    words = (tmp_path / "words").read_text()
    assert words.startswith("download ")
    assert "--no-deps --only-binary :all:" in words
    assert words.endswith("carrier==1.0\n")


def test_pip_of_this_python_is_preferred():
    pytest.importorskip("pip")
    words = fetch._client_words(Package("pip", "carrier", "1.0"))
    assert words[:3] == [sys.executable, "-m", "pip"]


@pytest.mark.parametrize(("kind", "program"), [("npm", "npm"), ("apt", "apt-get"), ("pip", "pip")])
def test_a_missing_client_is_named(kind, program, client, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        pytest.raises(UnreachableError, match=f"needs {program}, which is not installed"),
        package_file(Package(kind, "carrier", "1.0"), tmp_path),
    ):
        pass


def test_a_failing_client_says_why(client, tmp_path):
    client("npm", "echo 'npm warn old' >&2; echo 'npm error code E404' >&2; echo 'see the log' >&2; exit 1")
    with pytest.raises(UnreachableError, match=r"\(npm error code E404\)"), package_file(NPM, tmp_path):
        pass
    client("npm", "exit 1")
    with pytest.raises(UnreachableError, match="it gave no reason"), package_file(NPM, tmp_path):
        pass


@pytest.mark.parametrize("told", ["npm error code ENOSPC", "ERROR: [Errno 28] No space left on device"])
def test_a_client_that_finds_the_disk_full_is_not_one_that_fails(told, client, tmp_path):
    client("npm", f"echo '{told}' >&2; exit 1")
    with pytest.raises(OSError, match="No space left") as error, package_file(NPM, tmp_path):
        pass
    assert error.value.errno == errno.ENOSPC


def test_another_archive_is_refused_unopened(client, tmp_path):
    client("npm", "echo other > carrier-1.0.tgz")
    with pytest.raises(UnreachableError, match="is not the expected one"), package_file(NPM, tmp_path):
        pass
    client("npm", "true")
    with pytest.raises(UnreachableError, match="downloaded 0 files"), package_file(NPM, tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_client_that_hangs_is_ended(trap, client, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_CLIENT_TIMEOUT", 0.2)
    monkeypatch.setattr(fetch, "_TERMINATE_TIMEOUT", 0.2)
    client("npm", f"{trap}echo $$ > {tmp_path}/pid; exec sleep 60")
    with pytest.raises(UnreachableError, match="took over"), package_file(NPM, tmp_path):
        pass
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
