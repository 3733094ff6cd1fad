"""The API of block nodes as its tables have it, for each era: paths, field numbers, status codes. What a node answers is compared byte by
byte with what is made here, but for what only the node knows. No generated code, and none of services/block-node."""

from dataclasses import dataclass

from wire import message

PUBLISH = "/org.hiero.block.api.BlockStreamPublishService/publishBlockStream"
SUBSCRIBE = "/org.hiero.block.api.BlockStreamSubscribeService/subscribeBlockStream"
GET_BLOCK = "/org.hiero.block.api.BlockAccessService/getBlock"
STATUS = "/org.hiero.block.api.BlockNodeService/serverStatus"
STATUS_DETAIL = "/org.hiero.block.api.BlockNodeService/serverStatusDetail"
CONTENTS_PROOF = "/org.hiero.block.api.ProofService/getBlockContentsProof"

REFLECTION = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"
HEALTH = "/grpc.health.v1.Health/Check"

# No block, the latest block, without end: what it means depends on the field.
NONE = (1 << 64) - 1


def table(*names):
    """Codes from 1 on; 0 is UNKNOWN everywhere."""
    return {name: code for code, name in enumerate(names, 1)}


FIRST_END = table("SUCCESS", "TIMEOUT", "DUPLICATE_BLOCK", "BAD_BLOCK_PROOF", "BEHIND", "INTERNAL_ERROR", "PERSISTENCE_FAILED")
# It had no INVALID_REQUEST: what is wrong with a request is told as INTERNAL_ERROR.
FIRST_END["INVALID_REQUEST"] = FIRST_END["INTERNAL_ERROR"]
COMMON_END = ("SUCCESS", "INVALID_REQUEST", "ERROR", "TIMEOUT", "DUPLICATE_BLOCK", "BAD_BLOCK_PROOF")
FIRST_SUBSCRIBE = table("SUCCESS", "INVALID_START_BLOCK_NUMBER", "INVALID_END_BLOCK_NUMBER", "NOT_AVAILABLE")
SUBSCRIBE_CODES = table(
    "SUCCESS", "INVALID_REQUEST", "ERROR", "INVALID_START_BLOCK_NUMBER", "INVALID_END_BLOCK_NUMBER", "NOT_AVAILABLE"
)
FIRST_BLOCK = table("SUCCESS", "INVALID_REQUEST", "NOT_FOUND", "NOT_AVAILABLE")
BLOCK_CODES = table("SUCCESS", "INVALID_REQUEST", "ERROR", "NOT_FOUND", "NOT_AVAILABLE")
FIRST_PROOF = table("SUCCESS", "ITEM_NOT_FOUND", "NOT_AVAILABLE", "DUPLICATE")
PROOF_CODES = table(
    "SUCCESS", "INVALID_REQUEST", "ERROR", "ITEM_NOT_FOUND", "NOT_AVAILABLE", "DUPLICATE_HASH_ITEM_FOUND"
)


@dataclass(frozen=True)
class Era:
    """Whose numbers and framing are spoken."""

    name: str
    end: dict
    subscribe: dict
    block: dict
    proof: dict
    # Otherwise a block ends with its proof.
    has_end_of_block: bool
    # Whether an acknowledgement has the block's root hash.
    acknowledges_root: bool
    # What of the past a node of that time verifies: hapi_proto_version of the blocks that are published.
    version: tuple


ERAS = (
    Era("v0.13", FIRST_END, FIRST_SUBSCRIBE, FIRST_BLOCK, FIRST_PROOF, False, True, (0, 62, 2)),
    # The hash rules of its own time are nobody's any more.
    Era("v0.15", table(*COMMON_END, "BEHIND", "PERSISTENCE_FAILED"), SUBSCRIBE_CODES, BLOCK_CODES, PROOF_CODES, False, True, (0, 73, 0)),
    Era("v0.20", table(*COMMON_END, "BEHIND", "PERSISTENCE_FAILED"), SUBSCRIBE_CODES, BLOCK_CODES, PROOF_CODES, True, False, (0, 73, 0)),
    Era("today", table(*COMMON_END, "PERSISTENCE_FAILED"), SUBSCRIBE_CODES, BLOCK_CODES, PROOF_CODES, True, False, (0, 77, 0)),
)
TODAY = ERAS[-1]


def number(value):
    """A message whose field 1 is this number; 0 is not written, as in proto3."""
    return message((1, value or None))


# Fields of messages today, as a client that asks for their description must find them.
FIELDS = {
    "PublishStreamRequest": {"block_items": 1, "end_stream": 2, "end_of_block": 3},
    "PublishStreamResponse": {
        "acknowledgement": 1, "end_stream": 2, "skip_block": 3, "resend_block": 4, "node_behind_publisher": 5
    },
    "BlockEnd": {"block_number": 1},
    "BlockRequest": {"block_number": 1, "retrieve_latest": 2},
    "BlockResponse": {"status": 1, "block": 2},
    "SubscribeStreamResponse": {"status": 1, "block_items": 2, "end_of_block": 3},
    "ServerStatusResponse": {
        "first_available_block": 1, "last_available_block": 2, "only_latest_state": 3, "next_expected_block": 4
    },
    "BlockContentsProofRequest": {
        "block_number": 1, "complete_block_item": 2, "block_item_hash": 3, "block_item_index": 4
    },
    "BlockContentsProofResponse": {"status": 1, "block_content_proof": 2},
}

# PublishStreamRequest.

RESET = 1


def items(item_set):
    return message((1, item_set))


def end_stream(code, earliest=0, latest=0):
    return message((2, message((1, code or None), (2, earliest or None), (3, latest or None))))


def end_of_block(block):
    return message((3, number(block)))


# PublishStreamResponse.


def acknowledgement(era, block, root):
    return message((1, message((1, block or None), (2, root if era.acknowledges_root else None))))


def end_of_stream(era, code, last):
    return message((2, message((1, era.end[code]), (2, last or None))))


def skip(block):
    return message((3, number(block)))


def resend(block):
    return message((4, number(block)))


def behind(era, last):
    """To a publisher that is ahead: the last block that the node has."""
    return end_of_stream(era, "BEHIND", last) if "BEHIND" in era.end else message((5, number(last)))


# Subscribing, and single blocks.


def subscription(start, end):
    return message((1, start or None), (2, end or None))


def subscription_status(era, code):
    return message((1, era.subscribe[code]))


def block_response(era, code, block=None):
    return message((1, era.block[code]), (2, block))


# Responses of proofs.


def proof_request(block, item=None, item_hash=None, index=None):
    return message((1, block or None), (2, item), (3, item_hash), (4, index))


def proof_refusal(era, code):
    return message((1, era.proof[code]))
