"""Files on the Hugging Face Hub, by the library of its own: they are fetched, and read like any other file."""

from __future__ import annotations

import os

from spikecast.errors import ArtifactError, MissingExtraError, first_line

START = "hub://"


def fetched(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The file on this machine: `hub://user/repo/file.spikecast` is fetched first, unless it was before."""
    text = os.fspath(path)
    if not text.startswith(START):
        return path
    user, repository, file = [*text.removeprefix(START).split("/", 2), "", "", ""][:3]
    if not (user and repository and file):
        raise ArtifactError(f"{path} names no file of the hub; give hub://user/repo/file.spikecast")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise MissingExtraError(f"{path} needs huggingface_hub; pip install 'spikecast[hub]'") from error
    try:
        return hf_hub_download(f"{user}/{repository}", file)
    except Exception as error:  # no such file, no network, no permission: the library has a type for each
        raise ArtifactError(
            f"{path} could not be fetched ({first_line(error)}); check the name, or log in with hf auth login"
        ) from error
