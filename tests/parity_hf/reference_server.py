"""Runs programs of this folder one after the other, each in a process of its own that has torch and transformers already:
to import them takes longer than to train a small model.

  python reference_server.py

A line of the input is a JSON list, a program's name and its arguments. The line that answers it is a JSON list too: the exit
status, what the program has printed, and its errors.
"""

import json
import os
import pathlib
import runpy
import sys
import tempfile
import traceback

import bitsandbytes.nn  # noqa: F401
import peft  # noqa: F401
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, get_scheduler  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent


def run(program, arguments, streams):
    """In the child; does not return."""
    status = 1
    try:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream.fileno(), number)
        sys.argv = [program, *arguments]
        runpy.run_path(str(HERE / program), run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main():
    torch.set_num_threads(1)  # threads do not outlive a fork
    for line in sys.stdin:
        program, *arguments = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            pid = os.fork()
            if pid == 0:
                run(program, arguments, (out, errors))
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said = []
            for stream in (out, errors):
                stream.seek(0)
                said.append(stream.read())
        print(json.dumps([status, *said]), flush=True)


if __name__ == "__main__":
    main()
