"""Programs of users of tinygrad around models and data: 24 of them, compared with numpy, torch or the standard library.

Caches and sampling, quantised weights, checkpoints of other packages, files as Tensors, hashes, kernels and functions of
one's own, recorded functions that are kept, linear algebra, Fourier transforms, profiles and logs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import (
    Context,
    GlobalCounters,
    Tensor,
    TinyJit,
    UOp,
    Variable,
    dtypes,
    function,
    nn,
    profile,
)
from proofgrad.nn.state import (
    TensorIO,
    get_parameters,
    get_state_dict,
    gguf_load,
    load_state_dict,
    safe_load,
    safe_save,
    tar_extract,
    torch_load,
)
from proofgrad.uop.ops import KernelInfo

torch = pytest.importorskip("torch")
Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    found = found.numpy() if isinstance(found, Tensor) else found
    wanted = wanted.detach().numpy() if isinstance(wanted, torch.Tensor) else wanted
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


# -- language models --------------------------------------------------------------------------------

DIM, HEADS, GROUPS, CONTEXT = 16, 4, 2, 10


def turned(x: Tensor, freqs: Tensor) -> Tensor:
    """Rotary positions: pairs of elements as complex numbers."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    a, b, c, d = pairs[..., 0:1], pairs[..., 1:2], freqs[..., 0:1], freqs[..., 1:2]
    return (a * c - b * d).cat(a * d + b * c, dim=-1).flatten(3)


class Attention:
    """llama.py: shared keys, a cache, a position that is an int or a Variable."""

    def __init__(self) -> None:
        width = DIM // HEADS
        self.wq, self.wo = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.wk, self.wv = [nn.Linear(DIM, GROUPS * width, bias=False) for _ in range(2)]
        self.norm = nn.RMSNorm(DIM, 1e-5)
        freqs = 1.0 / (10000 ** (Tensor.arange(0, width, 2)[: width // 2] / width))
        freqs = Tensor.arange(CONTEXT).unsqueeze(1) * freqs.unsqueeze(0)
        self.freqs = (
            Tensor.stack(freqs.cos(), freqs.sin(), dim=-1)
            .reshape(1, CONTEXT, 1, width // 2, 2)
            .contiguous()
        )

    def __call__(self, x: Tensor, start: Any, mask: Tensor | None) -> Tensor:
        n, t, h = x.shape[0], x.shape[1], self.norm(x)
        q, k, v = [w(h).reshape(n, t, -1, DIM // HEADS) for w in (self.wq, self.wk, self.wv)]
        freqs = self.freqs.shrink((None, (start, start + t), None, None, None))
        q, k = turned(q, freqs), turned(k, freqs)
        if not hasattr(self, "cache"):
            self.cache = Tensor.zeros(2, n, CONTEXT, GROUPS, DIM // HEADS).contiguous().realize()
        self.cache.shrink((None, None, (start, start + t), None, None)).assign(
            Tensor.stack(k, v)
        ).realize()
        keys, values = [self.cache[i].shrink((None, (0, start + t), None, None)) for i in (0, 1)]
        keys, values = [
            y.repeat((1, 1, 1, HEADS // GROUPS)).reshape(n, start + t, HEADS, -1)
            for y in (keys, values)
        ]
        q, keys, values = q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        found = q.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return x + self.wo(found.reshape(n, t, -1))


def test_tokens_one_by_one_are_the_whole_text() -> None:
    layer, x = Attention(), numbers(1, CONTEXT, DIM)
    mask = Tensor.full((1, 1, CONTEXT, CONTEXT), float("-inf")).triu(1)
    whole = layer(Tensor(x), 0, mask).numpy()
    del layer.cache
    layer(Tensor(x[:, :3]), 0, mask[:, :, :3, :3]).realize()
    step = TinyJit(lambda token, at: layer(token, at, None).realize())
    for k in range(3, CONTEXT):
        at = Variable("start", 1, CONTEXT - 1).bind(k)
        close(step(Tensor(x[:, k : k + 1]).realize(), at), whole[:, k : k + 1])


def sample(logits: Tensor, temperature: float, k: int, p: float) -> tuple[Tensor, Tensor]:
    """llama.py: the k likeliest by argmax after argmax, and of these those of the share p. Gives probabilities and tokens."""
    t = (logits / temperature).softmax()
    counter = Tensor.arange(t.numel()).contiguous()
    back = Tensor.arange(t.numel() - 1, -1, -1).contiguous()
    output, positions = (
        Tensor.zeros(k).contiguous(),
        Tensor.zeros(k, dtype=dtypes.int32).contiguous(),
    )
    for i in range(k):
        largest = t.max()
        position = (t.numel() - ((t == largest) * back).max() - 1).cast(dtypes.default_int)
        output = output + largest.unsqueeze(0).pad(((i, k - i - 1),))
        positions = positions + position.unsqueeze(0).pad(((i, k - i - 1),))
        t = (counter == position).where(0, t)
    rest = output[::-1].cumsum()[::-1] + t.sum()
    return output * (rest >= 1 - p), positions


def test_likely_tokens_are_found_as_by_sorting() -> None:
    logits = numbers(50)
    found, positions = sample(Tensor(logits), 0.8, 8, 0.5)
    wanted = np.exp(logits / 0.8) / np.exp(logits / 0.8).sum()
    order = np.argsort(-wanted)
    rest = wanted[order][::-1].cumsum()[::-1][:8]
    assert positions.tolist() == order[:8].tolist()
    close(found, np.where(rest >= 0.5, wanted[order[:8]], 0))
    assert positions[found.multinomial()].item() in order[:8]


def test_weights_of_8_and_of_4_bits_are_used_as_floats() -> None:
    w, x = numbers(8, 64), numbers(3, 64, seed=1)
    scale = Tensor(w).abs().max(axis=1) / 127.0
    packed = (Tensor(w).T / scale).T.round().cast(dtypes.int8).realize()
    close(Tensor(x).dot(packed.cast(dtypes.float32).T * scale), x @ w.T, rtol=0.1, atol=0.15)
    code = np.linspace(-1, 1, 16).astype(np.float32)
    grouped = Tensor(w).reshape(-1, 16)
    scale = grouped.abs().max(axis=1, keepdim=True)
    coded = (
        ((grouped / scale).unsqueeze(-1) - Tensor(code))
        .abs()
        .argmin(axis=-1)
        .cast(dtypes.uint8)
        .flatten()
    )
    bytes_ = (coded[::2] * 2**4 + coded[1::2]).realize()
    unpacked = Tensor.stack(bytes_ // 16, bytes_ % 16, dim=-1)
    found = (Tensor(code)[unpacked].reshape(-1, 16) * scale).reshape(8, 64)
    wanted = w.reshape(-1, 16)
    largest = np.abs(wanted).max(1, keepdims=True)
    nearest = np.abs((wanted / largest)[..., None] - code).argmin(-1)
    assert coded.tolist() == nearest.flatten().tolist()
    close(found, (code[nearest] * largest).reshape(8, 64))


def test_a_gguf_file_fills_a_model_by_a_map_of_names(tmp_path: Path) -> None:
    w = numbers(4, 32)
    scales = (np.abs(w).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.round(w / scales.astype(np.float32)).astype(np.int8)
    raw = b"".join([s.tobytes() + c.tobytes() for s, c in zip(scales, codes)])
    name = b"blk.0.ffn_up.weight"
    head = (
        b"GGUF"
        + struct.pack("<IQQQ", 3, 1, 0, len(name))
        + name
        + struct.pack("<I2QIQ", 2, 32, 4, 8, 0)
    )
    (tmp_path / "m.gguf").write_bytes(head + bytes(-len(head) % 32) + raw)
    _, found = gguf_load(tmp_path / "m.gguf")
    layers = [{"up": nn.Linear(32, 4, bias=False)}]
    names = {"blk.0.ffn_up.weight": "0.up.weight"}
    load_state_dict(layers, {names[k]: v for k, v in found.items()}, verbose=False)
    x = numbers(2, 32, seed=1)
    close(layers[0]["up"](Tensor(x)), x @ (codes * scales.astype(np.float32)).T)


# -- files ------------------------------------------------------------------------------------------


def test_a_checkpoint_of_torch_gives_the_same_answers(tmp_path: Path) -> None:
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 5),
    )
    theirs(torch.randn(8, 3, 6, 6))
    theirs.eval()
    torch.save({"model": theirs.state_dict(), "epoch": 3}, tmp_path / "m.pt")

    class Model:
        def __init__(self) -> None:
            self.layers = [
                nn.Conv2d(3, 4, 3),
                nn.BatchNorm(4),
                Tensor.relu,
                lambda x: x.flatten(1),
                nn.Linear(64, 5),
            ]

        def __call__(self, x: Tensor) -> Tensor:
            return x.sequential(self.layers)

    saved, ours = torch_load(tmp_path / "m.pt"), Model()
    state = {f"layers.{k}": v for k, v in saved["model"].items()}
    load_state_dict(ours, state, verbose=False)
    x = numbers(2, 3, 6, 6)
    assert saved["epoch"] == 3
    close(ours(Tensor(x)), theirs(torch.tensor(x)))


def test_parts_of_an_index_of_safetensors_are_put_together(tmp_path: Path) -> None:
    names = {"a.weight": numbers(3, 4), "b.weight": numbers(2, 3, seed=1)}
    for k, (name, value) in enumerate(names.items()):
        safe_save({name: Tensor(value).half()}, tmp_path / f"part{k}.safetensors")
    index = {"weight_map": {name: f"part{k}.safetensors" for k, name in enumerate(names)}}
    (tmp_path / "m.index.json").write_text(json.dumps(index))
    files = json.loads((tmp_path / "m.index.json").read_text())["weight_map"]
    parts = {file: safe_load(tmp_path / file) for file in set(files.values())}
    model = {"a": nn.Linear(4, 3, bias=False), "b": nn.Linear(3, 2, bias=False)}
    load_state_dict(model, {k: parts[f][k].float() for k, f in files.items()}, verbose=False)
    x = numbers(5, 4, seed=2)
    close(
        model["b"](model["a"](Tensor(x))),
        x @ names["a.weight"].T @ names["b.weight"].T,
        rtol=1e-2,
        atol=2e-2,
    )


def test_a_large_array_is_written_to_disk_in_pieces_and_read_in_others(tmp_path: Path) -> None:
    rows = numbers(10, 6)
    there = Tensor.empty(10, 6, device=f"disk:{tmp_path / 'rows'}")
    for k in range(0, 10, 4):
        there[k : k + 4].assign(Tensor(rows[k : k + 4])).realize()
    flat = Tensor(tmp_path / "rows")
    assert flat.shape == (240,) and flat.dtype is dtypes.uint8
    close(flat[24:72].bitcast(dtypes.float32).reshape(2, 6).to(None), rows[1:3])
    close(
        (Tensor(tmp_path / "rows", dtype=dtypes.float32).reshape(10, 6)[::3].to("CPU") * 2),
        rows[::3] * 2,
    )


def test_pictures_are_read_from_a_tar_archive(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        for k, picture in enumerate(pixels):
            info = tarfile.TarInfo(f"{k}.raw")
            info.size = picture.nbytes
            archive.addfile(info, io.BytesIO(picture.tobytes()))
    files = tar_extract(Tensor(tmp_path / "p.tar"))
    batch = Tensor.stack(*[files[f"{k}.raw"].to(None).reshape(4, 4, 3) for k in range(3)])
    found = (batch.permute(0, 3, 1, 2).float() / 255 - 0.5).mean(axis=(2, 3))
    close(found, (pixels.astype(np.float32) / 255 - 0.5).mean(axis=(1, 2)))


def test_readers_of_the_standard_library_read_tensors(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "one\ntwo\n")
        archive.writestr("b.json.gz", gzip.compress(b'{"n": 3}'))
    (tmp_path / "x.zip").write_bytes(packed.getvalue())
    for source in (Tensor(packed.getvalue()), Tensor(tmp_path / "x.zip")):
        with zipfile.ZipFile(io.BufferedReader(TensorIO(source))) as archive:
            assert archive.read("a.txt").splitlines() == [b"one", b"two"]
            inner = TensorIO(Tensor(archive.read("b.json.gz")))
        with gzip.open(inner) as file:
            assert json.load(file) == {"n": 3}


def test_a_file_is_hashed_as_the_standard_library_does(tmp_path: Path) -> None:
    content = bytes(range(256)) + b"end"
    (tmp_path / "f").write_bytes(content)
    for name in ("sha3_256",):
        found = Tensor(tmp_path / "f").to(None).keccak(name).data().tobytes()
        assert found == hashlib.new(name, content).digest()


def test_a_jitted_step_is_kept_for_another_process(tmp_path: Path) -> None:
    (tmp_path / "step_of_mine.py").write_text(
        "from proofgrad import Tensor, TinyJit\n"
        "def plain(x, w):\n    return (x @ w).relu().realize()\n"
        "step = TinyJit(plain)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import step_of_mine  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
    x, w = numbers(2, 3), numbers(3, 2, seed=1)
    for _ in range(3):
        step_of_mine.step(Tensor(x).realize(), Tensor(w).realize())
    (tmp_path / "step.pkl").write_bytes(pickle.dumps(step_of_mine.step))
    code = (
        "import pickle, numpy; from proofgrad import Tensor\n"
        "step = pickle.load(open('step.pkl', 'rb'))\n"
        "x = Tensor(numpy.ones((2, 3), 'float32')).realize(); w = Tensor(numpy.ones((3, 2), 'float32')).realize()\n"
        "print(step(x, w).tolist())"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == "[[3.0, 3.0], [3.0, 3.0]]", run.stderr


# -- functions, kernels, recorded calls ---------------------------------------------------------------


def test_a_recorded_function_takes_names_and_gives_several_results() -> None:
    @TinyJit
    def stats(x: Tensor, *, shift: Tensor) -> dict[str, Any]:
        y = x + shift
        return {"mean": y.mean().realize(), "ends": (y.min().realize(), y.max().realize())}

    for k in range(4):
        x = numbers(6, seed=k)
        found = stats(Tensor(x).realize(), shift=Tensor([float(k)]).realize())
        close(found["mean"], (x + k).mean())
        assert [e.item() for e in found["ends"]] == [(x + k).min(), (x + k).max()]


def test_a_function_within_a_recorded_function_is_called_twice() -> None:
    @function
    def twice(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a + b, a * b

    @TinyJit
    def step(x: Tensor) -> Tensor:
        s, p = twice(x, x + 1)
        return twice(s, p)[0].realize()

    for k in range(4):
        assert step(Tensor([float(k)]).realize()).item() == 2 * k + 1 + k * (k + 1)


def test_a_kernel_of_one_s_own_has_a_gradient_and_is_recorded() -> None:
    def scaled(out: Any, a: Any, b: Any) -> Any:
        i = UOp.range(a.shape[0], 0)
        return out[i].store(a[i] * b[i] + a[i]).end(i).sink(arg=KernelInfo(name="scaled"))

    a, b = Tensor(numbers(5), requires_grad=True), Tensor(numbers(5, seed=1), requires_grad=True)
    Tensor.empty(5).custom_kernel(a, b, fxn=scaled)[0].sum().backward()
    close(a.grad, b.numpy() + 1)
    close(b.grad, a.numpy())
    step = TinyJit(lambda x: Tensor.empty(5).custom_kernel(x, x, fxn=scaled)[0].realize())
    for k in range(4):
        x = numbers(5, seed=k)
        close(step(Tensor(x).realize()), x * x + x)


@pytest.mark.parametrize("name", ("callify", "kernelize"))
def test_values_made_ready_are_computed_later(name: str) -> None:
    x = Tensor(numbers(4, 4)).realize()
    y = (x @ x).relu()
    z = y.sum(0) + 1
    getattr(y, name)(z)
    GlobalCounters.reset()
    close(z, np.maximum(numbers(4, 4) @ numbers(4, 4), 0).sum(0) + 1)
    assert GlobalCounters.kernel_count >= 1
    close(y, np.maximum(numbers(4, 4) @ numbers(4, 4), 0))


def test_a_model_is_cloned_to_another_device_and_trained_there() -> None:
    model = nn.Linear(3, 2)
    copy = {k: v.clone("REFERENCE").realize() for k, v in get_state_dict(model).items()}
    x = Tensor(numbers(4, 3))
    close(x.to("REFERENCE") @ copy["weight"].T + copy["bias"], model(x))
    copy["weight"] += 1
    close(copy["weight"].to("CPU"), model.weight.numpy() + 1)


def test_a_pruned_recording_sees_weights_that_are_written() -> None:
    weight = Tensor(numbers(3, 3)).realize()
    step = TinyJit(lambda x: (x @ weight.T.contiguous()).realize(), prune=True)
    for k in range(5):
        if k == 3:
            weight.assign(Tensor(numbers(3, 3, seed=9))).realize()
        x = numbers(2, 3, seed=k)
        close(step(Tensor(x).realize()), x @ weight.numpy().T)


# -- numbers ------------------------------------------------------------------------------------------


def test_a_ridge_is_fitted_by_factors_and_by_elimination() -> None:
    x, y = numbers(30, 4), numbers(30, 2, seed=1)
    a = Tensor(x).T @ Tensor(x) + 0.1 * Tensor.eye(4)
    wanted = np.linalg.solve(x.T @ x + 0.1 * np.eye(4, dtype=np.float32), x.T @ y)
    close(a.solve(Tensor(x).T @ Tensor(y)), wanted)
    low = a.cholesky()
    close(low.T.solve(low.solve(Tensor(x).T @ Tensor(y))), wanted)
    close(Tensor(x).lstsq(Tensor(y)), np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-3)
    q, r = Tensor(x).qr()
    close((q @ r)[:, :4], x)


def test_directions_of_most_variance_by_eigenvalues_and_by_singular_values() -> None:
    x = numbers(40, 5) * np.array([5, 1, 3, 0.5, 2], np.float32)
    centred = Tensor(x) - Tensor(x).mean(0)
    values, vectors = (centred.T @ centred / 39).eigh()
    _, singular, vt = centred.svd(full_matrices=False)
    wanted = np.linalg.eigvalsh(np.cov(x.T))
    close(values, wanted, rtol=1e-3)
    close(singular.square()[::-1] / 39, wanted, rtol=1e-3)
    overlap = (vectors[:, -1] * vt[0]).sum().abs()
    close(overlap, 1.0, rtol=1e-3)


def test_slow_waves_are_kept_and_a_convolution_is_a_product_of_transforms() -> None:
    t = np.arange(64)
    wave = (np.sin(2 * np.pi * 3 * t / 64) + 0.5 * np.sin(2 * np.pi * 20 * t / 64)).astype(
        np.float32
    )
    spectrum = Tensor(wave).rfft()
    slow = (spectrum * (Tensor.arange(33) < 8).unsqueeze(-1)).irfft()
    close(slow, np.sin(2 * np.pi * 3 * t / 64), atol=1e-4)
    a, b = numbers(10), numbers(6, seed=1)
    p, q = Tensor(a).rfft(n=16), Tensor(b).rfft(n=16)
    real = p[:, 0] * q[:, 0] - p[:, 1] * q[:, 1]
    imaginary = p[:, 0] * q[:, 1] + p[:, 1] * q[:, 0]
    close(Tensor.stack(real, imaginary, dim=-1).irfft()[:15], np.convolve(a, b), atol=1e-4)


def test_pictures_are_mixed_by_masks() -> None:
    x, other = numbers(4, 3, 8, 8), numbers(4, 3, 8, 8, seed=1)
    corner = Tensor([[1, 2], [0, 3], [5, 5], [2, 0]])
    rows = Tensor.arange(8).reshape(1, 1, 8, 1) - corner[:, 0].reshape(-1, 1, 1, 1)
    columns = Tensor.arange(8).reshape(1, 1, 1, 8) - corner[:, 1].reshape(-1, 1, 1, 1)
    mask = (rows >= 0) * (rows < 3) * (columns >= 0) * (columns < 3)
    found = Tensor.where(mask, Tensor(other), Tensor(x)).numpy()
    for k, (r, c) in enumerate(corner.tolist()):
        x[k, :, r : r + 3, c : c + 3] = other[k, :, r : r + 3, c : c + 3]
    assert (found == x).all()


# -- what is told ---------------------------------------------------------------------------------------


def test_a_profile_names_the_methods_of_a_step() -> None:
    model = [nn.Linear(8, 8), Tensor.relu, nn.Linear(8, 2)]
    with profile() as found:
        Tensor(numbers(4, 8)).sequential(model).softmax().realize()
    assert "softmax" in str(found) and "linear" in str(found)


def test_what_debug_prints_goes_to_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="proofgrad"), Context(DEBUG=2):
        (Tensor(numbers(3)) + 1).realize()
    assert any("E_3" in record.getMessage() for record in caplog.records)


def test_parameters_are_told_apart_from_buffers() -> None:
    norm = nn.BatchNorm(4)
    assert [k for k, p in get_state_dict(norm).items() if p.is_param] == ["weight", "bias"]
    assert len(get_parameters(norm)) == 5
