//! Messages of any values, in streams that are split, cut or damaged anywhere.

use proptest::prelude::*;

use super::super::client_name::OwnerClientName;
use super::super::message_body::MessageBody;
use super::super::owner_message::{
    FoundEntry, LeaseReply, OwnerMessage, PurgeEventScope, RefusalReason, SessionEvent,
};
use super::super::process_message::{ProcessMessage, SessionRequest, StoreRequest};
use super::{decode_pieces, encode_frame, stream_of_frames, AnyMessage};
use crate::bytes::SharedBytes;
use crate::cache::chain::{ChainState, ShownBlock};
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::freshness::{BlockAnchor, FinalityUpgrade};
use crate::cache::CacheKey;

/// Bodies with and without a shared part, of both sides of the length from which it is not copied.
fn body() -> impl Strategy<Value = MessageBody> {
    let length = prop_oneof![0..40_usize, 4_000..5_000_usize];
    (prop::collection::vec(any::<u8>(), 0..40), length).prop_map(|(owned, length)| {
        let shared = (0..length).map(|n| n as u8).collect::<Vec<u8>>();
        MessageBody::from_parts(owned, SharedBytes::from(shared))
    })
}

fn chunk() -> impl Strategy<Value = MessageBody> {
    body().prop_filter("a chunk has bytes", |body| body.byte_length() > 0)
}

fn key() -> impl Strategy<Value = CacheKey> {
    any::<[u8; 32]>()
}

fn shown_block() -> impl Strategy<Value = ShownBlock> {
    (any::<u64>(), any::<bool>()).prop_map(|(height, is_block)| ShownBlock { height, is_block })
}

fn chain_state() -> impl Strategy<Value = ChainState> {
    (
        (any::<u64>(), any::<Option<u64>>(), any::<u64>()),
        (any::<bool>(), any::<bool>()),
        prop::collection::vec(any::<(u64, u64)>(), 0..16),
        prop::collection::vec((any::<u64>(), key()), 0..8),
        prop::collection::vec(shown_block(), 0..16),
        (any::<Option<u64>>(), any::<Option<[u8; 32]>>()),
    )
        .prop_map(
            |((epoch, head, seen), (known, wrong), reorgs, blocks, shown, identity)| {
                let mut state = ChainState::default();
                (state.epoch, state.head, state.seen) = (epoch, head, seen);
                (state.last_final, state.since) = (head, seen);
                (state.known, state.wrong) = (known, wrong);
                (state.reorgs, state.blocks, state.shown) = (reorgs, blocks, shown);
                (state.chain_id, state.genesis) = identity;
                state
            },
        )
}

fn purge_event_scope() -> impl Strategy<Value = PurgeEventScope> {
    prop_oneof![
        Just(PurgeEventScope::MethodOrBlocks),
        key().prop_map(PurgeEventScope::Key),
        any::<[u8; 16]>().prop_map(PurgeEventScope::Namespace),
        Just(PurgeEventScope::Everything),
    ]
}

fn session_event() -> impl Strategy<Value = SessionEvent> {
    prop_oneof![
        key().prop_map(SessionEvent::Filled),
        key().prop_map(SessionEvent::LeaseReleased),
        (any::<[u8; 16]>(), chain_state()).prop_map(|(namespace, state)| SessionEvent::Chain {
            namespace,
            state: Box::new(state),
        }),
        (any::<u64>(), purge_event_scope())
            .prop_map(|(generation, scope)| SessionEvent::Purge { generation, scope }),
        any::<u16>().prop_map(|messages| SessionEvent::LateReply { messages }),
    ]
}

fn store_attributes() -> impl Strategy<Value = StoredEntryAttributes> {
    let class = prop::sample::select(LifetimeClass::ALL)
        .prop_filter("it is not sent", |class| *class != LifetimeClass::Nothing);
    let method = prop::option::of("[!-~]{1,255}");
    (
        class,
        any::<[u8; 16]>(),
        method,
        any::<(Option<u64>, u64, u64, Option<u64>)>(),
    )
        .prop_map(|(class, namespace, method, numbers)| {
            let (block, generation, epoch, height) = numbers;
            StoredEntryAttributes {
                class,
                namespace,
                method: method.map(String::into_boxed_str),
                block,
                generation,
                epoch,
                height,
            }
        })
}

fn store_request() -> impl Strategy<Value = StoreRequest> {
    let upgrade = (key(), any::<u64>(), any::<u64>()).prop_map(|(transaction, last, valid)| {
        FinalityUpgrade {
            transaction,
            last,
            valid,
        }
    });
    let anchor = prop_oneof![
        key().prop_map(BlockAnchor::ByRequest),
        (any::<u64>(), key()).prop_map(|(height, hash)| BlockAnchor::ByResult { height, hash }),
    ];
    (
        (any::<u32>(), key(), store_attributes()),
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>()),
        (prop::option::of(upgrade), prop::option::of(anchor)),
        body(),
    )
        .prop_map(
            |((id, key, about), (fresh, age, more, is_shareable), (if_final, anchor), entry)| {
                StoreRequest {
                    id,
                    key,
                    about,
                    fresh,
                    age,
                    if_final,
                    is_shareable,
                    anchor,
                    total: entry.byte_length() as u64 + u64::from(more),
                    entry,
                }
            },
        )
}

fn batch_lookup() -> impl Strategy<Value = ProcessMessage> {
    let keys = prop::collection::vec((key(), any::<u32>()), 1..40);
    let shareable = any::<prop::sample::Index>();
    (any::<(u32, u16, u32)>(), keys, shareable).prop_map(
        |((id, fleet_wait, lease_wait), keys, shareable)| {
            let (keys, mut call_kinds): (Vec<CacheKey>, Vec<u32>) = keys.into_iter().unzip();
            call_kinds.truncate(shareable.index(keys.len() + 1));
            ProcessMessage::BatchLookup {
                id,
                keys,
                call_kinds,
                fleet_wait,
                lease_wait,
            }
        },
    )
}

fn process_message() -> impl Strategy<Value = ProcessMessage> {
    let hello = ("[a-zA-Z0-9._-]{1,64}", any::<(u32, u64, bool)>()).prop_map(
        |(process, (attempt, clock, polls))| {
            ProcessMessage::Hello(SessionRequest {
                process: OwnerClientName::new(&process).unwrap(),
                attempt,
                clock,
                polls,
            })
        },
    );
    prop_oneof![
        hello,
        (
            any::<u32>(),
            key(),
            any::<Option<u32>>(),
            any::<u16>(),
            any::<u32>()
        )
            .prop_map(
                |(id, key, lease, fleet_wait, call_kind)| ProcessMessage::Lookup {
                    id,
                    key,
                    lease,
                    fleet_wait,
                    call_kind,
                }
            ),
        batch_lookup(),
        store_request().prop_map(|store| ProcessMessage::Store(Box::new(store))),
        key().prop_map(ProcessMessage::Release),
        (any::<[u8; 16]>(), shown_block()).prop_map(|(namespace, sighting)| {
            ProcessMessage::ShowBlock {
                namespace,
                sighting,
            }
        }),
        any::<(u64, u64)>()
            .prop_map(|(event, generation)| ProcessMessage::Applied { event, generation }),
        (any::<u32>(), body()).prop_map(|(id, scope)| ProcessMessage::Purge { id, scope }),
        any::<u32>().prop_map(|id| ProcessMessage::Status { id }),
        (any::<u32>(), chunk()).prop_map(|(id, bytes)| ProcessMessage::Chunk { id, bytes }),
        Just(ProcessMessage::Goodbye),
    ]
}

fn found_entry() -> impl Strategy<Value = FoundEntry> {
    (any::<(u64, u64, u32)>(), body()).prop_map(|((fresh, age, more), bytes)| FoundEntry {
        fresh,
        age,
        total: bytes.byte_length() as u64 + u64::from(more),
        bytes,
    })
}

fn owner_message() -> impl Strategy<Value = OwnerMessage> {
    let reasons = [
        RefusalReason::UnknownSession,
        RefusalReason::TooManyProcesses,
        RefusalReason::ClockDiffers,
        RefusalReason::Stopping,
    ];
    let leases = [
        LeaseReply::NoLease,
        LeaseReply::Granted,
        LeaseReply::Pending,
        LeaseReply::Full,
    ];
    prop_oneof![
        any::<(u64, u64, u64)>().prop_map(|(session, generation, event)| OwnerMessage::Welcome {
            session,
            generation,
            event,
        }),
        prop::sample::select(reasons.to_vec()).prop_map(OwnerMessage::Refused),
        any::<(u64, u64, u64)>().prop_map(|(until, after, generation)| OwnerMessage::SendLease {
            until,
            after,
            generation,
        }),
        (any::<u64>(), session_event())
            .prop_map(|(number, event)| OwnerMessage::Event { number, event }),
        (any::<(u32, u64)>(), found_entry()).prop_map(|((id, generation), entry)| {
            OwnerMessage::Found {
                id,
                generation,
                entry,
            }
        }),
        (any::<(u32, u64)>(), prop::sample::select(leases.to_vec())).prop_map(
            |((id, generation), lease)| OwnerMessage::Missing {
                id,
                generation,
                lease,
            }
        ),
        (any::<(u32, u64)>(), key(), found_entry()).prop_map(|((id, generation), key, entry)| {
            OwnerMessage::BatchFound {
                id,
                generation,
                key,
                entry,
            }
        }),
        any::<u32>().prop_map(|id| OwnerMessage::BatchWait { id }),
        any::<(u32, u64)>().prop_map(|(id, generation)| OwnerMessage::BatchEnd { id, generation }),
        (any::<(u32, u16, u32)>(), body()).prop_map(|((id, status, more), body)| {
            OwnerMessage::AdminReply {
                id,
                status,
                total: body.byte_length() as u64 + u64::from(more),
                body,
            }
        }),
        (any::<u32>(), chunk()).prop_map(|(id, bytes)| OwnerMessage::Chunk { id, bytes }),
    ]
}

fn message() -> impl Strategy<Value = AnyMessage> {
    prop_oneof![
        process_message().prop_map(AnyMessage::FromProcess),
        owner_message().prop_map(AnyMessage::FromOwner),
    ]
}

/// Messages of several frames.
fn frames() -> impl Strategy<Value = Vec<Vec<AnyMessage>>> {
    prop::collection::vec(prop::collection::vec(message(), 1..6), 1..4)
}

fn encode_stream(frames: &[Vec<AnyMessage>]) -> Vec<u8> {
    let frames: Vec<Vec<u8>> = frames.iter().map(|frame| encode_frame(frame)).collect();
    stream_of_frames(&frames)
}

proptest! {
    /// The receiver gets the messages that were sent, wherever the stream is split.
    #[test]
    fn messages_are_decoded_as_they_were_sent(frames in frames(), lengths in prop::collection::vec(1..3_000_usize, 1..20)) {
        let stream = encode_stream(&frames);
        let mut rest = &stream[..];
        let mut pieces = Vec::new();
        for length in lengths {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        let (decoded, error) = decode_pieces(pieces);
        prop_assert_eq!(error, Ok(()));
        prop_assert_eq!(decoded, frames.concat());
    }

    /// A stream that ends early is decoded up to its last whole frame.
    #[test]
    fn prefix_of_a_stream_is_decoded_without_an_error(frames in frames(), cut in any::<prop::sample::Index>()) {
        let stream = encode_stream(&frames);
        let (decoded, error) = decode_pieces([&stream[..cut.index(stream.len())]]);
        prop_assert_eq!(error, Ok(()));
        let all = frames.concat();
        prop_assert!(decoded.len() < all.len());
        prop_assert_eq!(&decoded[..], &all[..decoded.len()]);
    }

    /// A damaged stream is decoded to some messages or an error; the bodies of the messages have no
    /// bytes that were not received.
    #[test]
    fn damaged_stream_is_decoded_without_a_panic(
        frames in frames(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = encode_stream(&frames);
        for (at, bits) in damage {
            let at = at.index(stream.len());
            stream[at] ^= bits;
        }
        let (decoded, _) = decode_pieces([&stream[..]]);
        let bodies = decoded.iter().map(body_length);
        prop_assert!(bodies.sum::<usize>() <= stream.len());
    }

    /// Any bytes after the preface are decoded to some messages or an error.
    #[test]
    fn random_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (decoded, _) = decode_pieces([&stream_of_frames(std::slice::from_ref(&bytes))[..]]);
        prop_assert!(decoded.len() <= bytes.len());
    }
}

fn body_length(message: &AnyMessage) -> usize {
    use OwnerMessage::{AdminReply, BatchFound, Found};
    let body = match message {
        AnyMessage::FromProcess(ProcessMessage::Store(store)) => &store.entry,
        AnyMessage::FromProcess(ProcessMessage::Purge { scope: body, .. })
        | AnyMessage::FromProcess(ProcessMessage::Chunk { bytes: body, .. })
        | AnyMessage::FromOwner(AdminReply { body, .. })
        | AnyMessage::FromOwner(OwnerMessage::Chunk { bytes: body, .. }) => body,
        AnyMessage::FromOwner(Found { entry, .. } | BatchFound { entry, .. }) => &entry.bytes,
        _ => return 0,
    };
    body.byte_length()
}
