"""An error as it travels between processes and machines."""

from msgspec import Struct

from aici_base.errors import AiciError, UsageError, class_of


class Failure(Struct, frozen=True, array_like=True):
    """An AiciError as a message. A class outside of the tree of errors arrives as the nearest class inside."""

    code: str
    message: str
    hint: str = ""
    param: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        if isinstance(error, AiciError):
            param = error.param if isinstance(error, UsageError) else ""
            return cls(error.code, error.message, error.hint_for("http"), param)
        return cls(AiciError.code, f"the engine failed: {error!r}")

    def error(self) -> AiciError:
        error = class_of(self.code)(self.message, hint=self.hint)
        if isinstance(error, UsageError):
            error.param = self.param
        return error
