"""What the GPUs of this host do while a job runs, by NVML; `traffic_counters` has what its network carries.

NVML may hang as drivers do, and its answers take milliseconds. So a thread asks it, and the agent, which must
not wait, sends what came last.
"""

from __future__ import annotations

import ctypes
import threading
import time

from ringleader.agents.light_imports import Any, Callable

LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
SM_CLOCK = 1
"""nvmlClockType_t."""
SILENCE_SECONDS = 5.0
"""After which NVML has hung."""


class Memory(ctypes.Structure):
    """nvmlMemory_t and nvmlBAR1Memory_t, which begin with the total and are of the same size."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def nvml_error(library: Any, result: int) -> str:
    """Return what an answer of NVML says."""
    try:
        library.nvmlErrorString.restype = ctypes.c_char_p
        return str((library.nvmlErrorString(result) or b"").decode("utf-8", "replace")) or f"error {result}"
    except AttributeError:
        return f"error {result}"


class NvmlSession:
    """Questions to the library; each gives ``None`` where it has no answer."""

    def __init__(self, library: Any) -> None:
        """``library``: initialized."""
        self._library = library

    def ask(self, names: str, *arguments: Any) -> bool:
        """Whether one of the functions (by alternatives, newest first) answered into its arguments."""
        for name in names.split("|"):
            try:
                function = getattr(self._library, name)
            except AttributeError:
                continue
            if function(*arguments) == SUCCESS:
                return True
        return False

    def number(self, names: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
        """Return a number; ``None``: it has none."""
        answer = kind()
        return int(answer.value) if self.ask(names, *arguments, ctypes.byref(answer)) else None

    def text(self, name: str, *arguments: Any) -> str:
        """Return a text; empty: it has none."""
        buffer = ctypes.create_string_buffer(96)
        found = self.ask(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace") if found else ""


def thousandth(milliwatts: int | None) -> float | None:
    """Return watts."""
    return None if milliwatts is None else milliwatts / 1000


class Load:
    """What the GPUs do now, asked again and again of a library that stays open."""

    def __init__(self, library: Any = None) -> None:
        """Open it. Raises OSError with what is wrong."""
        library = ctypes.CDLL(LIBRARY) if library is None else library
        if (result := library.nvmlInit_v2()) != SUCCESS:
            raise OSError(nvml_error(library, result))
        self._session = NvmlSession(library)

    def read(self) -> dict[str, dict[str, float | None]]:
        """Return index → utilization (0 to 1), watts, hertz, memory (bytes in use). Raises OSError."""
        found: dict[str, dict[str, float | None]] = {}
        session = self._session
        count = session.number("nvmlDeviceGetCount_v2")
        for index in range(count or 0):
            handle, busy, memory = ctypes.c_void_p(), Utilization(), Memory()
            if not session.ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)):
                continue
            is_told = session.ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
            has_memory = session.ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            clock = session.number("nvmlDeviceGetClockInfo", handle, ctypes.c_int(SM_CLOCK))
            found[str(index)] = {
                "utilization": busy.gpu / 100 if is_told else None,
                "watts": thousandth(session.number("nvmlDeviceGetPowerUsage", handle)),
                "hertz": None if clock is None else clock * 1e6,
                "memory": int(memory.used) if has_memory else None,
            }
        if count is None or not any(value is not None for one in found.values() for value in one.values()):
            raise OSError("NVML does not answer any more")
        return found


class GpuSamples:
    """Asks NVML in a thread, which begins with the first sample: until then a rank may be forked."""

    def __init__(self, opened: Callable[[], Any] = Load, clock: Callable[[], float] = time.monotonic) -> None:
        """``opened()`` returns what has ``read()``; both may raise."""
        self._opened, self._clock = opened, clock
        self._wanted = threading.Semaphore(0)
        self._found: dict[str, Any] = {}
        self._asked_at: float | None = None
        """When what is being answered was asked; ``None``: nothing is."""
        self._said = ""
        self._has_thread = False

    def _answer(self) -> None:
        load = None
        while True:
            self._wanted.acquire()
            try:
                load = load or self._opened()
                self._found = {"gpus": load.read()}
            except Exception as error:  # whatever it is, the agent and the job continue
                load, self._found = None, {"fault": f"GPUs: {error}"}
            self._asked_at = None

    def take(self) -> dict[str, Any]:
        """Return ``gpus`` or a ``fault`` that was not returned before, and have the next ones asked for."""
        now, found = self._clock(), self._found
        self._found = {}
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._answer, name="ringleader-gpus", daemon=True).start()
        if self._asked_at is None:
            self._asked_at = now
            self._wanted.release()
        elif now - self._asked_at > SILENCE_SECONDS:
            found = {"fault": f"GPUs: NVML has not answered for {SILENCE_SECONDS:g} s"}
        fault = found.get("fault", "")
        if fault and fault == self._said:
            return {}
        self._said = fault if found else self._said
        return found
