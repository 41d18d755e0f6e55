"""Routes of optimizers: register, touch, poll, complete, leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from compaction_pipeline.api.bodies import Bodies, body_of, first_errors
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Caller, Guard
from compaction_pipeline.api.waiting_polls import WaitingPolls
from compaction_pipeline.api.wire import strictly
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.capacity.driver_gc import LONGEST_SECONDS, DriverGc
from compaction_pipeline.core.capacity.ledger import MOST_BYTES, MOST_CORES
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.application import APPLICATION_PATTERN, LONGEST_APPLICATION
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.group import MOST_MEMORY_OF_ONE
from compaction_pipeline.core.queue.optimizer import HEARTBEAT, LONGEST_WHY, MOST_OF_ONE_TOKEN, SILENCE, Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import NOT_TOLD, OutputFile
from compaction_pipeline.core.work.report import REQUIRED
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.services.access.keep_tokens import KeepTokens
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers

MOST_WAIT_SECONDS = 30.0
MOST_SLOTS = 1_024
_POLLS_AT_ONCE = 8
"""So many polls look at the state database at a time."""
_OTHERS_AT_ONCE = 16
"""So many heartbeats do. They have threads of their own, so polls never delay them, and people who look never do either."""
_REPORTS_AT_ONCE = 16
"""So many reports are looked at at a time. Each may take as long as the storage needs to answer for a thousand files. A heartbeat that
waited for them would come too late, and an honest optimizer would lose its tasks."""
_ASSIGNMENTS: TypeAdapter[Sequence[Assignment]] = TypeAdapter(Sequence[Assignment])
_Name = Annotated[str, Field(max_length=200)]
_Why = Annotated[str, Query(max_length=LONGEST_WHY)]


class _Strict(BaseModel):
    """A body. A field that the server does not know is an error, because the sender may count on it."""

    model_config = ConfigDict(extra="forbid")


class RegisterBody(_Strict):
    """What an optimizer says of itself when it registers."""

    group: _Name
    host: _Name
    process: _Name
    version: _Name
    merge_version: int
    parallelism: int = Field(ge=1, le=MOST_SLOTS)
    memory_bytes: int = Field(default=0, ge=0, le=MOST_MEMORY_OF_ONE)
    resource_id: _Name = ""
    cores: float | None = Field(default=None, gt=0, le=MOST_CORES, allow_inf_nan=False)


class Registered(BaseModel):
    """The id of a new optimizer, the token with which it speaks from now on, and how often it says that it is there."""

    optimizer_id: str
    token: str
    heartbeat_seconds: float


class UsedBody(_Strict):
    """What an attempt that runs has used until now: the processor time of its worker's process, and the peak of its memory."""

    cpu_ms: int = Field(ge=0, le=MOST_BYTES)
    peak_memory_bytes: int = Field(ge=0, le=MOST_BYTES)


class TouchBody(_Strict):
    """A heartbeat, with the attempts that run now, and with the id of the optimizer's Spark application when it has started one.

    `held_seconds` and `idle_seconds` are how long its slots together have held an attempt, and have waited for one, since it registered.
    `driver_gc_seconds` is how long the JVM of its Spark driver has collected garbage in the `driver_up_seconds` since it started.
    `used` has the attempts of which the optimizer sees what they have used.
    """

    running: list[_Name] = Field(max_length=MOST_SLOTS)
    application: str = Field(default="", max_length=LONGEST_APPLICATION, pattern=APPLICATION_PATTERN)
    held_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    idle_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    driver_gc_seconds: float | None = Field(default=None, ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)
    driver_up_seconds: float | None = Field(default=None, ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)
    used: dict[_Name, UsedBody] = Field(default={}, max_length=MOST_SLOTS)

    @property
    def driver_gc(self) -> DriverGc | None:
        """The totals of the Spark driver; None when one of them is not told."""
        if self.driver_gc_seconds is None or self.driver_up_seconds is None:
            return None
        return DriverGc(self.driver_gc_seconds, self.driver_up_seconds)

    @property
    def slots(self) -> SlotTotals | None:
        """The two totals; None when one of them is not told."""
        told = self.held_seconds is not None and self.idle_seconds is not None
        return SlotTotals(self.held_seconds or 0.0, self.idle_seconds or 0.0) if told else None


class TouchAnswer(BaseModel):
    """`lost` are the attempts that no longer hold their task. With `drain`, the optimizer takes no more tasks, and ends; `why` says why.

    Its log has the level `log_level`. For each new `stack_request` it writes the stacks of its threads into its log. Both may be "".
    """

    lost: list[str]
    drain: bool
    why: str
    log_level: str = ""
    stack_request: str = ""


class LogLevelBody(_Strict):
    """The level that the log of an optimizer is to have."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class PollBody(_Strict):
    """A poll for up to `free_slots` tasks. A poll whose answer was lost is repeated with the same `poll_id`, and gets the same answer."""

    poll_id: str = Field(min_length=1, max_length=64)
    free_slots: int = Field(default=1, ge=1, le=MOST_SLOTS)
    wait_seconds: float = Field(default=0, ge=0, le=MOST_WAIT_SECONDS)


class Completed(BaseModel):
    """The status that the task has after the report."""

    status: TaskStatus


def optimizer_routes(optimizers: ServeOptimizers, tokens: KeepTokens, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` that optimizers use."""
    routes = APIRouter(tags=["optimizers"], responses=ANSWERS)
    polls, others, reports = map(CapacityLimiter, (_POLLS_AT_ONCE, _OTHERS_AT_ONCE, _REPORTS_AT_ONCE))

    async def waits(group: str) -> bool:
        return await to_thread.run_sync(optimizers.waits, group, limiter=polls)

    waiting = WaitingPolls(waits)
    worker = guard.needs(Role.OPTIMIZER)

    async def itself(optimizer_id: str, token: Token = Depends(worker)) -> Token:
        """Return the token of the caller. Refuses a caller whose token does not speak for the optimizer of the path."""
        return _speaking_for(optimizer_id, token)

    newcomer, holder = _allowed(worker, _registering), _allowed(worker, _reporting)
    register_body = bodies.of(RegisterBody, newcomer, body_bounds.OTHER)
    touch_body = bodies.of(TouchBody, itself, body_bounds.TOUCH)
    poll_body = bodies.of(PollBody, itself, body_bounds.OTHER)
    report = bodies.read_by(_result, holder, body_bounds.REPORT)

    @routes.post("/optimizers", status_code=201, openapi_extra=body_of(RegisterBody))
    async def register(response: Response, body: RegisterBody = Depends(register_body), token: Token = Depends(newcomer)) -> Registered:
        """Register an optimizer. It gets an id and a token of its own."""
        response.headers["Cache-Control"] = "no-store"
        return await to_thread.run_sync(_registered, optimizers, tokens, body, token, limiter=others)

    @routes.post("/optimizers/{optimizer_id}/touch", openapi_extra=body_of(TouchBody), dependencies=[Depends(itself)])
    async def touch(optimizer_id: str, body: TouchBody = Depends(touch_body)) -> TouchAnswer:
        """Say that the optimizer is there, and renew the leases of its attempts."""
        running = [AttemptId(attempt) for attempt in body.running]
        used = {AttemptId(name): UsedSoFar(each.cpu_ms, each.peak_memory_bytes) for name, each in body.used.items()}
        touched = await to_thread.run_sync(
            optimizers.touch, optimizer_id, running, body.application, body.slots, body.driver_gc, used, limiter=others
        )
        return TouchAnswer(**{**asdict(touched), "lost": list(touched.lost)})

    @routes.post("/optimizers/{optimizer_id}/poll", response_model=list[Assignment], openapi_extra=body_of(PollBody))
    async def poll(request: Request, optimizer_id: str, body: PollBody = Depends(poll_body), token: Token = Depends(itself)) -> Response:
        """Take waiting tasks of the optimizer's group. The answer holds secrets: the properties that open the tables' files."""
        clock = asyncio.get_running_loop().time
        until = clock() + body.wait_seconds
        take = partial(optimizers.poll, optimizer_id, body.poll_id, body.free_slots, token.token_id)
        while not (taken := await to_thread.run_sync(take, limiter=polls)) and (left := until - clock()) > 0:
            group = await to_thread.run_sync(optimizers.group_of, optimizer_id, limiter=polls)
            await waiting.wait(group, left)
            if await request.is_disconnected():
                # Nobody would get the tasks that the next look might claim.
                return Response(status_code=499)
            await guard.check_again(request)
        answer = await to_thread.run_sync(_ASSIGNMENTS.dump_json, taken, limiter=polls)
        return Response(answer, media_type="application/json", headers={"Cache-Control": "no-store"})

    @routes.post("/attempts/{attempt_id}/complete", openapi_extra=body_of(MergeResult, {OutputFile: NOT_TOLD}))
    async def complete(attempt_id: str, result: MergeResult = Depends(report), token: Token = Depends(holder)) -> Completed:
        """Report how an attempt ended. The report is checked before it is believed."""
        assert token.optimizer_id is not None
        take = partial(optimizers.complete, token.optimizer_id, AttemptId(attempt_id), result)
        return Completed(status=await to_thread.run_sync(take, limiter=reports))

    @routes.delete("/optimizers/{optimizer_id}", status_code=204, dependencies=[Depends(itself)])
    async def leave(optimizer_id: str, failed: bool = False, why: _Why = "") -> None:
        """End an optimizer. Its tasks wait again at once. With `failed`, an error ended it, which `why` tells, and its attempts count as
        failed."""
        await to_thread.run_sync(partial(optimizers.leave, optimizer_id, failed=failed, error=why), limiter=others)

    return routes


def steering_routes(optimizers: ServeOptimizers, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` by which people steer optimizers."""
    admin = guard.needs()
    routes = APIRouter(tags=["optimizers"], responses=ANSWERS, dependencies=[Depends(admin)])
    nothing = plain_answer(type(None), status=202)
    level_body = bodies.of(LogLevelBody, admin, body_bounds.OTHER)

    @routes.post("/optimizers/{optimizer_id}/drain", status_code=204)
    def drain(optimizer_id: str) -> None:
        """Let an optimizer take no more tasks, and end after those that it has."""
        optimizers.drain(optimizer_id)

    @routes.post("/optimizers/{optimizer_id}/cancel", status_code=204)
    def cancel(optimizer_id: str) -> None:
        """End an optimizer now, whether or not it can be reached. Its tasks wait again at once."""
        optimizers.cancel(optimizer_id)

    @routes.post("/optimizers/{optimizer_id}/log-level", status_code=202, openapi_extra=body_of(LogLevelBody), responses=nothing)
    def log_level(optimizer_id: str, body: LogLevelBody = Depends(level_body)) -> None:
        """Let the log of an optimizer show messages of this level and worse ones. It learns it at its next heartbeat."""
        optimizers.set_log_level(optimizer_id, body.level)

    @routes.post("/optimizers/{optimizer_id}/stack", status_code=202, responses=nothing)
    def stack(optimizer_id: str) -> None:
        """Let an optimizer write the stacks of its threads into its log. It learns it at its next heartbeat."""
        optimizers.ask_for_stacks(optimizer_id)

    return routes


def _allowed(caller: Caller, check: Callable[[Token], Token]) -> Callable[..., Awaitable[Token]]:
    """A dependency that gives the token of the caller, when the check lets it pass."""

    async def allowed(token: Token = Depends(caller)) -> Token:
        return check(token)

    return allowed


def _speaking_for(optimizer_id: str, token: Token) -> Token:
    if token.role is not Role.ADMIN and token.optimizer_id != optimizer_id:
        raise HTTPException(403, f"this token does not belong to optimizer {optimizer_id!r}; use the one that its registration answered")
    return token


def _registering(token: Token) -> Token:
    """Refuses a token with which nobody may register."""
    if token.optimizer_id is not None:
        raise HTTPException(403, "this token belongs to a registered optimizer; register with the token that a person issued")
    if token.blocked_at is not None:
        raise _blocked(token)
    return token


def _reporting(token: Token) -> Token:
    """Refuses a token that is no optimizer's own."""
    if token.optimizer_id is None:
        raise HTTPException(403, "only the optimizer that holds an attempt reports it; use the token that its registration answered")
    return token


def _registered(optimizers: ServeOptimizers, tokens: KeepTokens, body: RegisterBody, token: Token) -> Registered:
    if not optimizers.has_room(token.token_id):
        seconds = int(SILENCE.total_seconds())
        raise HTTPException(
            429,
            f"{MOST_OF_ONE_TOKEN} optimizers that registered with token {token.token_id} are live, and more may not be: end some, or issue "
            f"another token with `compaction-pipeline token add`; one that says nothing for {seconds} s is not live any more",
            {"Retry-After": str(seconds)},
        )
    optimizer = optimizers.register(Registration(**body.model_dump()))
    own = tokens.issue(Role.OPTIMIZER, optimizer.optimizer_id, parent_id=token.token_id, optimizer_id=optimizer.optimizer_id)
    if tokens.is_blocked(token.token_id):
        # It was blocked meanwhile, before the new optimizer belonged to it.
        optimizers.end_all([optimizer.optimizer_id], "its token was blocked")
        raise _blocked(token)
    return Registered(optimizer_id=optimizer.optimizer_id, token=own.text, heartbeat_seconds=HEARTBEAT.total_seconds())


def _blocked(token: Token) -> HTTPException:
    return HTTPException(
        403,
        f"token {token.token_id} is blocked, because reports of its optimizers could not be true: find out why, then run "
        f"`compaction-pipeline token allow {token.token_id}` on the server's host",
    )


def _result(body: object) -> MergeResult:
    missing = sorted(REQUIRED - set(body)) if isinstance(body, Mapping) else []
    if missing:
        raise ConfigError(f"the report is no MergeResult: {', '.join(missing)}: missing; a report names every field of its outcome")
    outputs = body.get("outputs") if isinstance(body, Mapping) else None
    listed = outputs if isinstance(outputs, list) else ()
    told = {name for output in listed if isinstance(output, Mapping) for name in NOT_TOLD & output.keys()}
    if told:
        raise ConfigError(f"the report is no MergeResult: outputs: {', '.join(sorted(told))}: the server reads this from the files")
    try:
        result: MergeResult = strictly(MergeResult, body)
    except ValidationError as error:
        raise ConfigError(f"the report is no MergeResult: {first_errors(error)}") from None
    except ValueError as error:
        raise ConfigError(f"the report is no MergeResult: body: {error}") from None
    return result
