"""The runtime's texts about guests, as users of the engine read them."""

from aici_engine.control.guest_errors import guest_error


def test_flags_of_the_runtime_are_not_named() -> None:
    text = "instantiate: timeout; the controller took more than 1000 ms (--wasm-max-init-time) to start"
    assert guest_error(text).message == "instantiate: timeout; the controller took more than 1000 ms to start"


def test_the_number_of_late_steps_stays() -> None:
    flags = "--wasm-max-step-time, --wasm-max-timeout-steps"
    text = f"Worker: timeout; mid_process took more than 100 ms (in each of 20 steps: {flags})"
    assert guest_error(text).message == "Worker: timeout; mid_process took more than 100 ms in each of 20 steps"
    text = "Worker: timeout; mid_process took more than 25 ms (--wasm-max-step-time)"
    assert guest_error(text).message == "Worker: timeout; mid_process took more than 25 ms"


def test_the_mark_of_a_stop_is_removed() -> None:
    assert guest_error("no luck\n*** aici_host_stop()").message == "no luck"


def test_too_many_forks_name_the_setting() -> None:
    error = guest_error("Worker: too many forks (max=16)")
    assert error.message == "Worker: too many forks (max=16)"
    assert "--max-forks" in error.hint_for("cli")
    assert "max_forks=" in error.hint_for("python")
    assert "--" not in error.hint_for("http")
