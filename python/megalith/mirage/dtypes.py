"""Element types as objects, for ``new_tensor(dtype=mirage.bfloat16)``."""


class dtype:
    """An element type; str() of it is Megalith's name."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<dtype {self.name}>"


bfloat16 = dtype("bf16")
float16 = dtype("f16")
float32 = dtype("f32")
int8 = dtype("i8")
int32 = dtype("i32")
int64 = dtype("i64")
