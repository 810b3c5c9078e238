"""Trees that differ in their nodes: nesting, batch sizes, keys, names and stacks."""

import torch
from tensordict import NonTensorData, TensorDict, lazy_stack

from trees.registry import numbers, tree, values

# --- shape of the tree ---


@tree()
def empty():
    return TensorDict()


@tree()
def empty_with_a_batch_size():
    return TensorDict(batch_size=[3, 2])


@tree()
def empty_nodes():
    return TensorDict({"a": TensorDict(), "b": {"c": TensorDict(batch_size=[2])}, "x": numbers(2)})


@tree()
def flat():
    batch = (4, 3, 2, 1)
    return TensorDict(
        {
            "a": torch.randn(*batch, 5),
            "b": torch.randn(*batch, 10),
            "c": values(torch.int64, *batch, 3),
        },
        batch_size=batch,
    )


@tree()
def nested():
    batch = (4, 3, 2, 1)
    return TensorDict(
        {
            "a": torch.randn(*batch, 5),
            "my_nested_td": TensorDict({"inner": torch.randn(*batch, 2)}, batch_size=batch),
        },
        batch_size=batch,
    )


@tree()
def interleaved_leaves_and_nodes():
    return TensorDict(
        {
            "z": {"y": numbers(1), "a": {"b": numbers(2)}},
            "b": numbers(2),
            "a": {"x": numbers(3)},
            "c": numbers(4),
        }
    )


@tree()
def sixty_levels():
    td = TensorDict({"bottom": numbers(2)}, batch_size=[2])
    for level in range(60):
        td = TensorDict({f"n{level}": td, "x": torch.full((2,), level)}, batch_size=[2])
    return td


@tree()
def deeper_batch_sizes_in_deeper_nodes():
    return TensorDict(
        {
            "x": numbers(4, 3),
            "n": TensorDict(
                {"x": numbers(4, 3, 2), "m": TensorDict(batch_size=[4, 3, 5])}, batch_size=[4, 3]
            ),
        },
        batch_size=[4],
    )


@tree()
def batch_size_without_rows():
    return TensorDict({"x": torch.empty(0, 3), "n": TensorDict(batch_size=[0, 2])}, batch_size=[0])


@tree()
def batch_size_set_afterwards():
    td = TensorDict({"x": numbers(4, 3, 2)}, batch_size=[4])
    td.batch_size = [4, 3, 2]
    return td


@tree()
def a_row_of_another():
    return flat()[1]


@tree()
def locked():
    return TensorDict({"x": numbers(3), "n": {"y": numbers(2)}}).lock_()


@tree()
def with_a_device():
    return TensorDict({"x": numbers(3), "n": {"y": numbers(2)}}, device="cpu")


# --- keys ---

# Keys with characters that folders encode in file names (see docs/format.md), and similar keys.
TABLE_KEYS = [
    "a/b", "a b", "100%", "a%2Fb", "a\\b", "C:x", 'q?"*|', "x<y>z",
    "", ".", "..", "...", ".hidden", "a.", "é", "日本", "tab\t", "del\x7f",
    "~&+#'()", "a.b", "a.b.memmap", "%", "%%", "%2f", "/", "\\", "//etc/passwd", "../up",
]  # fmt: skip

# Names that the layout itself uses.
LAYOUT_KEYS = [
    "meta", "meta.json", "other.pickle", "pickle.pkl", "json_types.json", "_tensordict", "_source",
    "0", "1", "x.shape", "%notes.json", "%checksums", "%values", "%clash-0", "data", "type",
    "dtype", "is_nested", "stack_dim", "_metadata", "_is_non_tensor", "batch_size", "names", "root",
]  # fmt: skip


@tree(needs="0.14")
def keys_of_leaves():
    return TensorDict({key: torch.tensor([i]) for i, key in enumerate(TABLE_KEYS)})


@tree(needs="0.14")
def keys_of_nodes():
    return TensorDict({key: {"x": torch.tensor([i])} for i, key in enumerate(TABLE_KEYS)})


@tree(needs="0.14")
def every_ascii_character_as_a_key():
    return TensorDict({chr(i): torch.tensor([i]) for i in range(128)})


@tree()
def keys_that_the_layout_uses_for_leaves():
    return TensorDict(
        {key: torch.tensor([i]) for i, key in enumerate(k for k in LAYOUT_KEYS if "%" not in k)}
    )


@tree()
def keys_that_the_layout_uses_for_nodes():
    keys = [key for key in LAYOUT_KEYS if key != "meta.json"]  # tensordict cannot write this
    return TensorDict({key: {"x": torch.tensor([i])} for i, key in enumerate(keys)})


@tree()
def keys_in_many_scripts():
    keys = [
        "é",
        "e\u0301",
        "日本",
        "ключ",
        "🙂",
        "\u00a0",
        "\u2028",
        "مفتاح",
        "ß",
        "ẞ",
        "\uffff",
        "\U0001d4b3",
    ]
    return TensorDict({key: {"leaf" + key: torch.tensor([i])} for i, key in enumerate(keys)})


@tree()
def keys_that_differ_in_case():
    return TensorDict(
        {"a": numbers(1), "A": numbers(2), "n": {"x": numbers(3)}, "N": {"x": numbers(4)}}
    )


@tree()
def keys_with_file_names_of_255_bytes():
    leaf, node = "l" * (255 - len(".memmap")), "n" * 255
    return TensorDict({leaf: numbers(2), node: {leaf: numbers(3)}, "é" * 124: numbers(4)})


@tree(needs="0.14")
def keys_that_are_long_once_encoded():
    return TensorDict({"/" * 82: numbers(2), " " * 85: {"x": numbers(3)}})


@tree()
def keys_named_as_members_of_version_1():
    return TensorDict(
        {"_format_version": numbers(2), "_class": numbers(3), "_names": {"x": numbers(4)}}
    )


@tree(
    upstream_cannot_load=("shape", "device", "_type"),
    not_described=("shape", "device", "_type"),
)
def reserved_keys_of_leaves():
    return TensorDict(
        {"shape": numbers(2), "device": numbers(3), "_type": numbers(4), "x": numbers(5)}
    )


@tree(
    upstream_cannot_load=("n/shape", "n/device", "n/_type"),
    not_described=("n/shape", "n/device", "n/_type"),
)
def reserved_keys_of_nodes():
    inner = {key: {"y": numbers(2)} for key in ("shape", "device", "_type", "x")}
    return TensorDict({"n": inner})


# --- dim names ---


@tree()
def dim_names():
    return TensorDict({"x": numbers(4, 3, 2)}, batch_size=[4, 3], names=["time", "env"])


@tree()
def dim_names_on_some_dimensions():
    return TensorDict({"x": numbers(4, 3, 2)}, batch_size=[4, 3, 2], names=[None, "é\n", None])


@tree()
def dim_names_of_nested_nodes():
    inner = TensorDict({"x": numbers(4, 3)}, batch_size=[4, 3], names=["time", "agent"])
    return TensorDict({"n": inner, "m": TensorDict(batch_size=[4])}, batch_size=[4], names=["time"])


# --- lazy stacks ---


@tree()
def lazy_stack_along_the_first_dimension():
    return lazy_stack(
        [TensorDict({"x": numbers(3) + i, "n": {"y": numbers(2) * i}}) for i in range(3)]
    )


@tree()
def lazy_stack_along_the_last_dimension():
    return lazy_stack(
        [TensorDict({"x": numbers(4, 3) + i}, batch_size=[4, 3]) for i in range(2)], -1
    )


@tree()
def lazy_stack_of_different_shapes():
    return lazy_stack(
        [TensorDict({"x": numbers(i, 2), "y": values(torch.bool, 3 - i)}) for i in range(4)]
    )


@tree()
def lazy_stack_of_different_keys_and_dtypes():
    return lazy_stack(
        [
            TensorDict({"x": numbers(2), "a": numbers(1)}),
            TensorDict({"x": values(torch.int64, 2), "b": {"c": numbers(1)}}),
            TensorDict({"x": NonTensorData("text")}),
        ]
    )


@tree()
def lazy_stack_of_twelve():
    return lazy_stack([TensorDict({"x": torch.tensor(i)}) for i in range(12)])


@tree()
def lazy_stack_below_a_node():
    stacks = [TensorDict({"x": numbers(2, i + 1)}, batch_size=[2]) for i in range(3)]
    return TensorDict({"s": lazy_stack(stacks, 1), "t": {"x": numbers(2)}}, batch_size=[2])


@tree()
def lazy_stack_of_lazy_stacks():
    def row(i):
        return lazy_stack(
            [TensorDict({"x": numbers(2, i + j)}, batch_size=[2]) for j in range(2)], 1
        )

    return lazy_stack([row(0), row(3)])


@tree()
def lazy_stack_of_named_dimensions():
    parts = [TensorDict({"x": numbers(4, 2) + i}, batch_size=[4], names=["time"]) for i in range(2)]
    stack = lazy_stack(parts, 1)
    stack.names = ["time", "agent"]
    return TensorDict({"s": stack}, batch_size=[4], names=["time"])


@tree()
def lazy_stack_of_one_without_elements():
    return lazy_stack([TensorDict({"x": torch.empty(0, 2)}, batch_size=[0])])


@tree()
def lazy_stack_of_strings():
    return TensorDict(
        {"s": lazy_stack([TensorDict({"t": text}) for text in ("a", "", "é")])}, batch_size=[3]
    )
