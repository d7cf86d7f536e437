"""The names and shapes of the state of each model that standard input defines, by a program or a config.json."""

import json
import os
import sys
import tempfile


def model_of(definition):
    if not definition.startswith("{"):
        space = {}
        exec(definition, space)
        return space["model"]
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write(definition)
        config = transformers.AutoConfig.from_pretrained(folder)
    return getattr(transformers, json.loads(definition)["architectures"][0])(config)


def save(model):
    """The names are those in files."""
    if not hasattr(model, "save_pretrained"):
        return model.state_dict()
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def state(definition):
    tensors = save(model_of(definition))
    return {name: tensor.shape for name, tensor in tensors.items() if "num_batches_tracked" not in name}


print(json.dumps([state(definition) for definition in json.load(sys.stdin)]))
