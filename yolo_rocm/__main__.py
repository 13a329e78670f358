"""`python -m yolo_rocm`: the command line."""

import sys

if __name__ == "__main__":
    try:
        from .cli.main import main
    except ModuleNotFoundError as missing:  # a clone, and nothing installed yet
        if missing.name not in ("typer", "rich"):
            raise
        folder = r".venv-setup\Scripts" if sys.platform == "win32" else ".venv-setup/bin"
        sys.exit(
            f"error: {missing.name} is not installed. Type `{'py' if sys.platform == 'win32' else 'python3'} -m venv "
            f".venv-setup`, `{folder}/pip install .`, then `{folder}/yolo-rocm setup`."
        )
    main()
