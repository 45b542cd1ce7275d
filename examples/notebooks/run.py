"""Run the notebooks of this folder anew, and keep what they print and draw: `make notebooks`, or

python examples/notebooks/run.py [NOTEBOOK ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HOME = Path(__file__).resolve().parent
NOTEBOOKS = sorted(HOME.glob("*.ipynb"))


def executed(path: Path) -> NotebookNode:
    """The notebook with the outputs of a run in a process and a folder of its own; a cell that fails raises."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        # Times of day are not kept: the same run writes the same file.
        client = NotebookClient(
            notebook, timeout=600, record_timing=False, coalesce_streams=True, store_widget_state=False
        )
        client.execute(cwd=folder)
    for cell in notebook.cells:  # stderr has what the tools around a notebook say, such as tqdm of missing widgets
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}  # which Python it was does not matter
    return notebook


def main() -> None:
    for path in [Path(word) for word in sys.argv[1:]] or NOTEBOOKS:
        nbformat.write(executed(path), path)
        print(f"{path.name}: {path.stat().st_size // 1000} KB", flush=True)


if __name__ == "__main__":
    main()
