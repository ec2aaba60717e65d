"""The tasks by name. To add a task, write one file and add its class to `TASKS`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minbert.errors import UserError, one_of
from minbert.files import expand_user, key_hash
from minbert.train.run import InputFiles
from minbert.train.settings import names_in
from tasks.definitions import read_definition, recorded_definition
from tasks.own import OwnTask
from tasks.quora import Paraphrase
from tasks.sst import Sentiment
from tasks.sts import Similarity
from tasks.task import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (Sentiment, Paraphrase, Similarity)}


def resolve_task(word: str, flag: str = "--task", tasks: Mapping[str, Task | type[Task]] = TASKS) -> str:
    """The task name for a task's short name (`para`, in the course's flags) or name, as given to `flag`.

    Raises `UserError` if it is unknown.
    """
    names = {name: name for name in tasks}
    for name, task in tasks.items():
        # a name takes precedence over another task's short name
        names.setdefault(task.files.flag_prefix, name)
    return names[one_of(word, names, flag)]


def build(names: str, pairs: str, flag: str = "tasks", recorded: Mapping[str, Any] | None = None) -> list[Task]:
    """The tasks of a list such as `sst,quora,reviews.toml`.

    A task of a file is read from it, or from `recorded`, what a run's manifest says of such tasks. Raises `UserError`,
    its message starting with `flag`, for an unknown or duplicate name or an empty list, and for a task's file that has
    mistakes.
    """
    tasks: list[Task] = []
    for word in names_in(names):
        if not word.endswith(".toml"):
            tasks.append(TASKS[resolve_task(word, flag)](pairs))
        elif recorded is None:
            tasks.append(OwnTask(read_definition(expand_user(word)), pairs))
        else:
            # neither the task's file nor its data are read
            tasks.append(OwnTask(recorded_definition(recorded[Path(word).stem]), pairs))
    if not tasks or len({task.name for task in tasks}) < len(tasks):
        raise UserError(f"{flag}: {names!r} must name at least one task, each only once")
    titles = [task.title for task in tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"{flag}: two tasks have the title {title!r}; give one another `title`")
    return tasks


def inputs(tasks: Iterable[Task]) -> InputFiles:
    """The files of tasks that come from files, each with the hash of what its results depend on."""
    files = {}
    for task in tasks:
        if task.definition is not None:
            content = key_hash([task.definition.reading, task.definition.metric, task.definition.weight])
            files[f"definition of {task.name}"] = (task.definition.source, content)
    return files


def definitions(tasks: Iterable[Task]) -> dict[str, Any] | None:
    """What a manifest says of the tasks that come from files, so that `build` can make them again; None without any."""
    return {task.name: asdict(task.definition) for task in tasks if task.definition is not None} or None
