from gradpivot import CUP, ForgetSplit, unlearn
from gradpivot.experiments import find_problem
from gradpivot.runs import train_original


def test_it_can_be_learned_and_forgotten():
    problem = find_problem("my_problem:clusters")
    split = ForgetSplit.by_class(*problem.load(), 1)
    model = train_original(problem, split, seed=0)
    result = unlearn(model, split, CUP(gamma=1.0, lr=0.01, batch_size=16), task=problem.task)
    assert result.scores.ua > 0.9
    assert result.scores.ra > 0.9
