"""The tasks by name. To add a task, write one file and add one line to this table."""

from pkgutil import resolve_name

from minbert.errors import UserError, one_of
from minbert.train.settings import names_in
from tasks.task import Task

_TABLE = {
    "sst": "tasks.sst:Sentiment",
    "quora": "tasks.quora:Paraphrase",
    "sts": "tasks.sts:Similarity",
}
TASKS: dict[str, type[Task]] = {name: resolve_name(path) for name, path in _TABLE.items()}


def resolve_task(word: str, flag: str = "--task") -> str:
    """The task name for a task's short name (`para`, in the course's flags) or name, as given to `flag`.

    Raises `UserError` if it is unknown.
    """
    names = {name: name for name in TASKS}
    for name, task in TASKS.items():
        # a name takes precedence over another task's short name
        names.setdefault(task.files.flag_prefix, name)
    return names[one_of(word, names, flag)]


def build(names: str, pairs: str, flag: str = "tasks") -> list[Task]:
    """The tasks of a list such as `sst,quora,sts`.

    Raises `UserError`, its message starting with `flag`, for an unknown or duplicate name or an empty list.
    """
    chosen = [resolve_task(name, flag) for name in names_in(names)]
    if not chosen or len(set(chosen)) < len(chosen):
        raise UserError(f"{flag}: {names!r} must name at least one task, each only once")
    return [TASKS[name](pairs) for name in chosen]
