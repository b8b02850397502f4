//! The steps of a simulation, and the strategy that generates them.

use proptest::prelude::*;

/// An event at a client, the owner, the node or the network. Clients, messages and fetches are
/// chosen by an index, modulo their number.
#[derive(Clone, Debug)]
pub enum WorldStep {
    /// A client of a sandbox looks a key up.
    LookUp(usize, u8),
    /// A client of a sandbox looks all keys up at once, as in a batch.
    LookUpAll(usize),
    /// A client of a sandbox disconnects.
    Disconnect(usize, usize),
    /// A sandbox evicts a key from its memory.
    Evict(usize, u8),
    /// A callout arrives at the owner.
    Deliver(usize),
    /// A response arrives.
    Reply(usize),
    /// A callout fails.
    Fail(usize),
    /// A callout is lost without a failure, before its timeout.
    Lose(usize),
    /// Another server than the owner responds, or the response is damaged.
    Damage(usize),
    /// The node responds to a fetch of a sandbox, with one of 16 outcomes.
    NodeResponds(usize, usize, u8),
    /// The operator purges a key, or everything.
    Purge(u8),
    /// A client of a sandbox purges everything.
    PurgeByClient(usize),
    /// A block is added.
    Head,
    /// A number of blocks are replaced, and one is added.
    Reorg(u64),
    /// Milliseconds pass.
    Pass(u64),
    /// The owner ends; another one starts now or later.
    Restart(bool),
}

pub fn step() -> impl Strategy<Value = WorldStep> {
    let vm = 0..2usize;
    let which = any::<usize>();
    prop_oneof![
        20 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| WorldStep::LookUp(vm, key)),
        2 => vm.clone().prop_map(WorldStep::LookUpAll),
        8 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| WorldStep::Evict(vm, key)),
        2 => (vm.clone(), which).prop_map(|(vm, which)| WorldStep::Disconnect(vm, which)),
        45 => which.prop_map(WorldStep::Deliver),
        45 => which.prop_map(WorldStep::Reply),
        1 => which.prop_map(WorldStep::Fail),
        1 => which.prop_map(WorldStep::Lose),
        1 => which.prop_map(WorldStep::Damage),
        15 => (vm.clone(), which, 0..16u8).prop_map(|(vm, which, outcome)| WorldStep::NodeResponds(vm, which, outcome)),
        3 => (0..5u8).prop_map(WorldStep::Purge),
        1 => vm.prop_map(WorldStep::PurgeByClient),
        2 => Just(WorldStep::Head),
        2 => (0..4u64).prop_map(WorldStep::Reorg),
        4 => prop_oneof![4 => 1..10u64, 1 => 100..2_000u64].prop_map(WorldStep::Pass),
        1 => any::<bool>().prop_map(WorldStep::Restart),
    ]
}
