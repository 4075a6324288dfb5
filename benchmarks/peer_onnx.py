"""The workloads of inference as ONNX graphs, which onnxruntime and OpenVINO run.

Owns: the graphs, both ways to run them. As users of these do, weights are constants of the graph: the second operand of products,
filters, tables of rows. Does not own: training and gradients, which neither has here.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy
from onnx import TensorProto, helper, numpy_helper
from peer_workloads import Workload, arrays
from side_by_side import Run

OPSET = 20
HEADS, WIDTH = 12, 768
# Kinds whose arrays after the first are weights.
WITH_WEIGHTS = ("product", "batch", "turned_a", "turned_b", "convolution")


def run_of(workload: Workload, framework: str) -> Run:
    """A call on the arrays of the workload. Raises: NotImplementedError for what is no inference or asks for new memory, ImportError."""
    if workload.is_fresh:
        raise NotImplementedError("both keep the memory of results")
    given = arrays(workload)
    if workload.kind == "embedding":  # the table is the weight
        given = [given[1], given[0]]
    fed = 1 if workload.kind in (*WITH_WEIGHTS, "embedding") else len(given)
    graph = Graph(given[fed:])
    model = graph.model(given[:fed], graph.of(workload))
    threads = len(os.sched_getaffinity(0))
    feeds = {f"x{k}": array for k, array in enumerate(given[:fed])}
    run = _in_onnxruntime if framework == "onnxruntime" else _in_openvino
    return run(model.SerializeToString(), feeds, threads)


def _in_onnxruntime(model: bytes, feeds: dict[str, Any], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def _in_openvino(model: bytes, feeds: dict[str, Any], threads: int) -> Run:
    import openvino

    # Without this it takes bfloat16 where the processor has it.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": str(threads)}
    core = openvino.Core()
    request = core.compile_model(core.read_model(model), "CPU", settings).create_infer_request()
    given = list(feeds.values())
    return lambda: request.infer(given, share_inputs=True, share_outputs=True)


class Graph:
    """Nodes and constants of one graph; each method gives the name of what it adds."""

    def __init__(self, weights: list[Any]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.weights = [self.constant(array) for array in weights]

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(numpy.array(value, numpy.float32))

    def node(self, op: str, *given: str, **options: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, given, [name], **options))
        return name

    def model(self, fed: list[Any], result: str) -> Any:
        """The graph as a model whose only result is that node."""
        types = {"f": TensorProto.FLOAT, "i": TensorProto.INT32}
        inputs = [
            helper.make_tensor_value_info(f"x{k}", types[array.dtype.kind], array.shape)
            for k, array in enumerate(fed)
        ]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "workload", inputs, outputs, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10)

    def of(self, workload: Workload) -> str:
        """The result of a workload, whose arrays are x0, x1 ... Raises: NotImplementedError."""
        match workload.kind:
            case "product" | "batch":
                return self.node("MatMul", "x0", *self.weights)
            case "turned_a":
                return self.node("Gemm", "x0", *self.weights, transA=1)
            case "turned_b":
                return self.node("Gemm", "x0", *self.weights, transB=1)
            case "elementwise":
                doubled = self.node("Mul", "x0", self.number(2))
                positive = self.node("Relu", self.node("Add", doubled, self.number(1)))
                return self.node("Sub", self.node("Mul", positive, "x0"), self.number(3))
            case "gelu":
                return self.node("Gelu", "x0", approximate="tanh")
            case "softmax":
                return self.node("Softmax", "x0", axis=-1)
            case "layernorm":
                return self.norm("x0", workload.sizes[-1])
            case "transpose":
                return self.node("Transpose", "x0", perm=[1, 0])
            case "sum":
                return self.node("ReduceSum", "x0", keepdims=0)
            case "sum_axis0":
                axis = self.constant(numpy.array([0], numpy.int64))
                return self.node("ReduceSum", "x0", axis, keepdims=0)
            case "embedding":
                return self.node("Gather", *self.weights, "x0")
            case "convolution":
                *_, window, stride = workload.sizes
                pads = [window // 2] * 4
                return self.node("Conv", "x0", *self.weights, strides=[stride] * 2, pads=pads)
            case "attention" | "causal" as kind:
                _, tokens, width = workload.sizes
                keys = self.node("Transpose", "x1", perm=[0, 1, 3, 2])
                return self.attention("x0", keys, "x2", tokens, width, kind == "causal")
            case "block":
                return self.block("x0", *workload.sizes)
            case "jitted":
                added = self.node("Add", "x0", self.number(1))
                return self.node("Relu", self.node("Mul", added, self.number(2)))
            case "ten":
                value = "x0"
                for _ in range(10):
                    value = self.node("MatMul", value, value)
                return value
        raise NotImplementedError(f"{workload.name} is no inference")

    def norm(self, x: str, width: int) -> str:
        ones = self.constant(numpy.ones(width, numpy.float32))
        return self.node("LayerNormalization", x, ones, axis=-1, epsilon=1e-5)

    def attention(self, q: str, keys: str, v: str, tokens: int, width: int, is_causal: bool) -> str:
        """`keys`: with their last two axes exchanged."""
        scaled = self.node("Mul", q, self.number(1 / math.sqrt(width)))
        scores = self.node("MatMul", scaled, keys)
        if is_causal:
            hidden = numpy.triu(numpy.full((tokens, tokens), -numpy.inf, numpy.float32), 1)
            scores = self.node("Add", scores, self.constant(hidden))
        return self.node("MatMul", self.node("Softmax", scores, axis=-1), v)

    def linear(self, x: str, width: int, outputs: int, rng: Any) -> str:
        weight = rng.standard_normal((width, outputs), numpy.float32) / math.sqrt(width)
        bias = numpy.zeros(outputs, numpy.float32)
        return self.node("Add", self.node("MatMul", x, self.constant(weight)), self.constant(bias))

    def block(self, x: str, tokens: int) -> str:
        """A block of GPT-2: attention and two layers, each after a norm."""
        rng = numpy.random.default_rng(0)
        parts = []
        normed = self.norm(x, WIDTH)
        split = self.constant(numpy.array([1, tokens, HEADS, WIDTH // HEADS], numpy.int64))
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            heads = self.node("Reshape", self.linear(normed, WIDTH, WIDTH, rng), split)
            parts.append(self.node("Transpose", heads, perm=order))
        q, keys, v = parts
        mixed = self.attention(q, keys, v, tokens, WIDTH // HEADS, True)
        joined = self.constant(numpy.array([1, tokens, WIDTH], numpy.int64))
        flat = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = self.node("Add", x, self.linear(flat, WIDTH, WIDTH, rng))
        hidden = self.linear(self.norm(x, WIDTH), WIDTH, 4 * WIDTH, rng)
        hidden = self.node("Gelu", hidden, approximate="tanh")
        return self.node("Add", x, self.linear(hidden, 4 * WIDTH, WIDTH, rng))
