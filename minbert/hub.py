"""Uploading an encoder to the Hugging Face hub.

python -m minbert.weights push runs/cbcl --repo somebody/encoder
"""

from minbert import weights
from minbert.errors import UserError
from minbert.files import expanded


def push(place: str, repo: str, *, private: bool = False) -> str:
    """Upload an encoder's folder, or that of a run, with its card; returns the repository's address.

    The repository is created if it is missing. Raises `UserError` if there is no encoder or no login, and if the hub
    refuses or cannot be reached.
    """
    from huggingface_hub import HfApi, get_token

    folder = expanded(weights.of_run(place))
    if not (folder / "model.safetensors").is_file():
        raise UserError(f"{place}: neither an encoder's folder nor a finished run")
    if get_token() is None:
        raise UserError("push: this machine is not logged in to the hub; run `hf auth login` or set HF_TOKEN")
    try:
        made = HfApi().create_repo(repo, private=private, exist_ok=True)
        HfApi().upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message="Upload the encoder")
    except Exception as error:  # the type depends on the HTTP library of the hub's client
        raise UserError(f"--repo {repo}: not uploaded: {' '.join(str(error).split())}") from error
    return str(made)
