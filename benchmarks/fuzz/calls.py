"""Calls that work, for ops whose arguments must go together; hostile calls are made from them, one change at a time."""

from __future__ import annotations

from typing import Any

_UP = {"1d": "f234", "2d": "f2344", "3d": "f23444"}


def _list(value: Any) -> Any:
    return ["list", [_list(item) for item in value]] if isinstance(value, list) else value


def _resizes() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    kinds = ["upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d"]
    kinds += ["_upsample_nearest_exact2d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"]
    kinds += ["upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
    for name in kinds:
        rank = next(d for d in _UP if d in name)
        count = int(rank[0])
        corners = [] if "nearest" in name else [False]
        found[f"{name}.default"] = [_UP[rank], [6] * count, *corners, *[2.0] * count]
        found[f"{name}.vec"] = [_UP[rank], None, *corners, [2.0] * count]
    return found


def _pads() -> dict[str, list[Any]]:
    return {
        f"{kind}_pad{d}.default": [_UP[d], [1, 1] * int(d[0])] for kind in ("reflection", "replication") for d in _UP
    }


def _pools() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for d, x in _UP.items():
        n = int(d[0])
        found[f"avg_pool{d}.default"] = [x, [2] * n, [1] * n, [0] * n, False, True]
        found[f"max_pool{d}.default"] = [x, [2] * n, [1] * n, [0] * n, [1] * n, False]
        for name in ("adaptive_avg_pool", "_adaptive_avg_pool", "adaptive_max_pool"):
            found[f"{name}{d}.default"] = [x, [2] * n]
    return found


def _convolutions() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for d, x in _UP.items():
        n = int(d[0])
        weight, one, zero = "f43" + "2" * n, [1] * n, [0] * n
        found[f"conv{d}.default"] = [x, weight, "f4", one, zero, one, 1]
        found[f"conv{d}.padding"] = [x, weight, "f4", one, "same", one, 1]
        overload = "default" if n == 1 else "input"
        found[f"conv_transpose{d}.{overload}"] = [x, "f34" + "2" * n, "f4", one, zero, zero, 1, one]
        found[f"convolution.default#{d}"] = [x, weight, "f4", one, zero, one, False, zero, 1]
    return found


VALID: dict[str, list[Any]] = {
    **_resizes(),
    **_pads(),
    **_pools(),
    **_convolutions(),
    "max_pool2d_with_indices.default": ["f2344", [2, 2], [1, 1], [0, 0], [1, 1], False],
    "addbmm.default": ["f33", "f233", "f233"],
    "addmm.default": ["f23", "f23", "f33"],
    "addmm.dtype": ["f23", "f23", "f33", ["torch", "float32"]],
    "baddbmm.default": ["f233", "f233", "f233"],
    "bmm.default": ["f233", "f233"],
    "mm.default": ["f23", "f33"],
    "mv.default": ["f23", "f3"],
    "dot.default": ["f3", "f3"],
    "matmul.default": ["f2344", "f44"],
    "linear.default": ["f2344", "f54", "f5"],
    "bilinear.default": ["f23", "f24", "f534", "f5"],
    "tensordot.default": ["f234", "f43", [2, 1], [0, 1]],
    "einsum.default": ["abc,cd->abd", ["f234", "f44"]],
    "batch_norm.default": ["f2344", "f3", "f3", "f3", "f3", False, 0.1, 1e-5, False],
    "instance_norm.default": ["f2344", "f3", "f3", None, None, True, 0.1, 1e-5, False],
    "group_norm.default": ["f2444", 2, "f4", "f4", 1e-5, False],
    "native_group_norm.default": ["f2444", "f4", "f4", 2, 4, 16, 2, 1e-5],
    "layer_norm.default": ["f234", [4], "f4", "f4", 1e-5, False],
    "native_layer_norm.default": ["f234", [4], "f4", "f4", 1e-5],
    "rms_norm.default": ["f234", [4], "f4", 1e-5],
    "im2col.default": ["f2344", [2, 2], [1, 1], [0, 0], [1, 1]],
    "col2im.default": ["f289", [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]],
    "embedding.default": ["f54", "i23", -1, False, False],
    "embedding_bag.default": ["f54", "i6", "i2", False, 0, False, None, False],
    "embedding_bag.padding_idx": ["f54", "i6", "i2", False, 0, False, None, False, 0],
    "grid_sampler.default": ["f2344", "f2332", 0, 0, False],
    "grid_sampler.default#3d": ["f23444", "f23332", 0, 0, False],
    "grid_sampler_2d.default": ["f2344", "f2332", 0, 0, False],
    "pixel_shuffle.default": ["f2444", 2],
    "pixel_unshuffle.default": ["f2344", 2],
    "channel_shuffle.default": ["f2444", 2],
    "native_channel_shuffle.default": ["f2444", 2],
    "index.Tensor": ["f2344", [None, "i2"]],
    "index.Tensor_hacked_twin": ["f2344", ["i2", "i2"]],
    "index_add.default": ["f23", 1, "i2", "f22"],
    "index_select.default": ["f23", 1, "i4"],
    "gather.default": ["f23", 1, "i22"],
    "scatter_add.default": ["f23", 1, "i22", "f22"],
    "take_along_dim.default": ["f23", "i22", 1],
    "as_strided.default": ["f23", [2, 2], [3, 1], 0],
    "view.default": ["f2344", [2, 48]],
    "reshape.default": ["f2344", [2, -1]],
    "unflatten.int": ["f2344", 3, [2, 2]],
    "expand.default": ["f14", [3, 4]],
    "broadcast_to.default": ["f14", [3, 4]],
    "repeat.default": ["f23", [2, 2]],
    "repeat_interleave.Tensor": ["i3"],
    "repeat_interleave.self_Tensor": ["f23", "i3", 1],
    "repeat_interleave.self_int": ["f23", 2, 1],
    "roll.default": ["f23", [1], [0]],
    "permute.default": ["f234", [2, 0, 1]],
    "movedim.intlist": ["f234", [0, 1], [1, 0]],
    "narrow.default": ["f23", 1, 0, 2],
    "slice.Tensor": ["f23", 1, 0, 2, 1],
    "slice_scatter.default": ["f23", "f22", 1, 0, 2, 1],
    "select_scatter.default": ["f23", "f2", 1, 0],
    "diagonal_scatter.default": ["f33", "f3", 0, 0, 1],
    "split_with_sizes.default": ["f23", [1, 2], 1],
    "split.default": ["f23", [1, 2], 1],
    "split.sizes": ["f23", [1, 2], 1],
    "unfold.default": ["f2344", 3, 2, 1],
    "pad.default": ["f2344", [1, 1], "reflect", None],
    "constant_pad_nd.default": ["f2344", [1, 1], 0.5],
    "glu.default": ["f24", 1],
    "div.Tensor_mode#i": ["i23", "i23"],
    "div.Scalar_mode#i": ["i23", 2],
    "floor_divide.default#i": ["i23", "i23"],
    "remainder.Tensor#i": ["i23", "i23"],
    "fmod.Tensor#i": ["i23", "i23"],
    "pow.Tensor_Tensor#i": ["i23", "i23"],
    "searchsorted.Tensor": ["f23", "f23"],
    "bucketize.Tensor": ["f23", "f3"],
    "prelu.default": ["f2344", "f3"],
    "topk.default": ["f23", 2, 1, True, True],
    "where.self": ["b23", "f23", "f23"],
    "masked_fill.Scalar": ["f23", "b23", 0.5],
    "cosine_similarity.default": ["f23", "f23", 1, 1e-8],
    "rot90.default": ["f23", 1, [0, 1]],
    "tensor_split.tensor_indices_or_sections": ["f23", "i2", 0],
}
KEYWORDS: dict[str, dict[str, Any]] = {
    "div.Tensor_mode": {"rounding_mode": "trunc"},
    "div.Scalar_mode": {"rounding_mode": "floor"},
    "round.decimals": {"decimals": 3},
}
VALID = {
    name: [_list(item) if isinstance(item, list) and item[:1] != ["torch"] else item for item in args]
    for name, args in VALID.items()
}
