"""The worker's program: `python -I -X utf8 THIS_FOLDER --frames-fd N`."""

if (
    __name__ == "__main__"
):  # a child of multiprocessing's spawn imports this file under another name
    import sys

    from comfy_supervisor_worker.main import main

    sys.path.pop(0)  # this folder: a pack must not find our modules
    main(sys.argv[1:])
