"""Writes checkpoint.pt, zip64.pt, negative.pt, negative_legacy.pt and evil.pt as `torch.save` would, without PyTorch: stand-in classes give the pickle the
globals that a real file has. Run in this folder."""
import collections, io, pickle, struct, sys, types, zipfile


def stub(module, name):
    mod = sys.modules.setdefault(module, types.ModuleType(module))

    def it(*args):
        raise NotImplementedError

    it.__module__, it.__qualname__, it.__name__ = module, name, name
    setattr(mod, name, it)
    return it


sys.modules["torch"] = types.ModuleType("torch")
rebuild = stub("torch._utils", "_rebuild_tensor_v2")
FloatStorage = stub("torch", "FloatStorage")


class Storage:
    def __init__(self, key, n):
        self.key, self.n = key, n


class Tensor:
    def __init__(self, key, shape, stride, n, *metadata):
        self.args = (Storage(key, n), 0, shape, stride, False, collections.OrderedDict(), *metadata)

    def __reduce__(self):
        return rebuild, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, Storage):
            return ("storage", FloatStorage, obj.key, "cpu", obj.n) + self.view
        return None

    view = ()


class LegacyPickler(Pickler):
    view = (None,)


def save(path, obj, storages, root="checkpoint"):
    data = io.BytesIO()
    Pickler(data, protocol=2).dump(obj)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        entries = [("data.pkl", data.getvalue()), ("byteorder", b"little")]
        entries += [(f"data/{k}", struct.pack(f"<{len(v)}f", *v)) for k, v in storages.items()]
        for name, content in entries + [("version", b"3\n")]:
            z.writestr(zipfile.ZipInfo(f"{root}/{name}"), content)


def save_legacy(path, obj, storages):
    """The layout of PyTorch 0.1.10 to 1.5, and of `_use_new_zipfile_serialization=False`."""
    system = dict(protocol_version=1001, little_endian=True, type_sizes=dict(short=2, int=4, long=4))
    with open(path, "wb") as f:
        for header in (0x1950A86A20F9469CFC6C, 1001, system):
            pickle.dump(header, f, protocol=2)
        LegacyPickler(f, protocol=2).dump(obj)
        pickle.dump(list(storages), f, protocol=2)
        for values in storages.values():
            f.write(struct.pack(f"<q{len(values)}f", len(values), *values))


def add_zip64_records(path):
    """torch.save always writes the ZIP64 end record and its locator (76 bytes), needed or not."""
    data = open(path, "rb").read()
    end = data.rindex(b"PK\x05\x06")
    n, size, offset = struct.unpack("<H2I", data[end + 10:end + 20])
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, size, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    open(path, "wb").write(data[:end] + record + locator + data[end:])


class Evil:
    def __reduce__(self):
        import os
        return os.system, ("touch pwned",)


weights = {
    "module.fc.weight": Tensor("0", (2, 3), (3, 1), 6),
    "module.fc.bias": Tensor("1", (2,), (1,), 2),
}
save("checkpoint.pt", {"epoch": 3, "state_dict": weights}, {"0": [0, 1, 2, 3, 4, 5], "1": [0.5, -0.5]})
# 21 characters: the first directory entry (46 bytes and the name of data.pkl) is as long as the two ZIP64 records.
save("zip64.pt", {"fc.bias": Tensor("0", (2,), (1,), 2)}, {"0": [0.5, -0.5]}, root="checkpoint_of_run_021")
add_zip64_records("zip64.pt")
# As `torch.complex(x, y).conj().imag` is saved: PyTorch reads the bias as [-0.5, 0.5].
negative = {
    "epoch": 3,
    "state_dict": {
        "fc.weight": Tensor("0", (2, 3), (3, 1), 6),
        "fc.bias": Tensor("1", (2,), (1,), 2, {"neg": True}),
    },
}
save("negative.pt", negative, {"0": [0, 1, 2, 3, 4, 5], "1": [0.5, -0.5]})
save_legacy("negative_legacy.pt", negative, {"0": [0, 1, 2, 3, 4, 5], "1": [0.5, -0.5]})
save("evil.pt", {"weight": Evil()}, {})
