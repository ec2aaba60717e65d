"""A search: Optuna chooses settings of one arm, one run for each trial, and prunes trials below the median.

A trial is judged by the dev score that its script maximises, at its last evaluation; the evaluations before it prune.
Trials and their settings are kept in `search.db` in the study's folder, so a stopped search goes on.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ablations.cells import Cell
from ablations.runner import Runner
from ablations.study import Range, Search, Study
from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.training.cli import say
from tasks.tables import MISSING, Table

if TYPE_CHECKING:
    from optuna import Study as Trials
    from optuna import Trial


def search(study: Study, seed: int, data: str, runs: Path, runner: Runner) -> None:
    """Run the remaining trials, as many at once as the runner has jobs, and write `search.md` and `search.csv`."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("a study with [search] needs Optuna: pip install optuna") from error
    wanted = study.file.search
    assert wanted is not None
    folder = runs / study.name
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    how: Any = {"sampler": optuna.samplers.TPESampler(seed=seed), "pruner": optuna.pruners.MedianPruner()}
    storage = f"sqlite:///{folder / 'search.db'}"
    trials = optuna.create_study(
        storage=storage, study_name=study.name, direction="maximize", load_if_exists=True, **how
    )
    while True:
        open_ = trials.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        batch = [optuna.Trial(trials, one._trial_id) for one in open_]  # those of a search that was stopped
        free = min(runner.jobs - len(batch), wanted.trials - len(trials.get_trials(deepcopy=False)))
        batch += [trials.ask() for _ in range(free)]
        if not batch:
            break
        _run(study, wanted, batch, trials, seed, data, folder, runner)
        _write(trials, folder)
        if runner.stopped:
            break


def _run(
    study: Study,
    wanted: Search,
    batch: "list[Trial]",
    trials: "Trials",
    seed: int,
    data: str,
    folder: Path,
    runner: Runner,
) -> None:
    from optuna.trial import TrialState

    arm = study.arms[wanted.arm]
    of: dict[Path, Trial] = {}
    cells = []
    for trial in batch:
        settings = {**arm.settings, **_suggested(trial, wanted, arm.flat)}
        name = f"trial-{trial.number}"
        upstream = folder / arm.upstream / f"seed-{seed}" if arm.upstream else None
        cell = Cell(replace(arm, name=name, settings=settings), seed, folder / name / f"seed-{seed}", upstream, data)
        cells.append(cell)
        of[cell.folder] = trial

    seen: dict[Path, int] = {}

    def pruned(cell: Cell) -> bool:
        """Whether a new evaluation, but for the last, is below the median of the trials before it."""
        trial, after, (_, last) = of[cell.folder], seen.get(cell.folder, 0), cell.reached
        fresh = [row for row in _evaluations(cell) if after < row["step"] < last and row["score"] is not None]
        for row in fresh:
            trial.report(row["score"], row["step"])
            seen[cell.folder] = row["step"]
        return bool(fresh) and trial.should_prune()

    some = replace(runner, cells=cells, watch=pruned, failed={}, pruned=set())
    try:
        some.run()
    finally:
        runner.stopped = some.stopped
        runner.failed |= some.failed
        for cell in cells:
            if cell.folder in some.pruned:
                trials.tell(of[cell.folder], state=TrialState.PRUNED)
            elif cell.name in some.failed:
                trials.tell(of[cell.folder], state=TrialState.FAIL)
            elif cell.finished:
                trials.tell(of[cell.folder], _evaluations(cell)[-1]["score"])


def _evaluations(cell: Cell) -> list[dict[str, Any]]:
    return [row for row in cell.metrics if row["kind"] == "evaluation"]


def _suggested(trial: "Trial", wanted: Search, flat: dict[str, Any]) -> dict[str, Any]:
    """The trial's settings; an integer setting stays one."""
    found = {}
    for given, choice in wanted.settings.items():
        name = given.replace("-", "_")
        if not isinstance(choice, Range):
            found[name] = trial.suggest_categorical(name, choice)
        else:
            suggest: Any = trial.suggest_int if isinstance(flat[name], int) else trial.suggest_float
            found[name] = suggest(name, *choice.ends(flat[name]), log=choice.log)
    return found


def _write(trials: "Trials", folder: Path) -> None:
    """Write the trials, the best first."""
    rows = [
        {"trial": one.number, "score": one.value, "state": one.state.name.lower(), **one.params}
        for one in trials.get_trials(deepcopy=False)
    ]
    frame = pd.DataFrame(rows).sort_values("score", ascending=False, na_position="last")
    write_atomic(folder / "search.csv", frame.to_csv(index=False))
    shown = frame.map(
        lambda cell: (
            MISSING if cell is None or cell != cell else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
        )
    )
    write_atomic(folder / "search.md", Table("Trials", shown).markdown())
    say(f"search: {len(frame)} trials, the best in {folder / 'search.md'}")
