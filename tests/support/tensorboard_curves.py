"""Prints what TensorBoard's own reader finds in a folder, as JSON: {"scalars": {tag: [[step, value]]},
"texts": {tag: [[step, text]]}}. Run by the Python that `deploy/install-deps --tests` installs."""

import json
import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder):
    # 0: all points, not a sample of them.
    reader = event_accumulator.EventAccumulator(
        folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    tags = reader.Tags()
    print(json.dumps({
        "scalars": {tag: [[e.step, e.value] for e in reader.Scalars(tag)]
                    for tag in tags["scalars"]},
        "texts": {tag: [[e.step, e.tensor_proto.string_val[0].decode()]
                        for e in reader.Tensors(tag)] for tag in tags["tensors"]},
    }))


main(sys.argv[1])
