//! A BeaconState of deneb with any number of validators, made from a seed.

use std::error::Error;

use ssz_peers::peers::libssz::{BeaconState, Validator};
use ssz_peers::peers::PeerSszCodec;
use ssz_peers::{resolve_peer_type, sample};

const ETH: u64 = 1_000_000_000;
const FAR_FUTURE_EPOCH: u64 = u64::MAX;

/// Returns the state in SSZ.
pub fn generate_state_ssz(validators: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut rng = fastrand::Rng::with_seed(validators as u64);
    let (schema, ty) = resolve_peer_type("BeaconState");
    let mut state = BeaconState::decode_ssz(&sample::random_value_ssz(schema, ty, &mut rng))?;
    let mut epochs = 0..;
    let mut validator = || {
        let epoch = epochs.next().unwrap_or(0) / 8;
        let mut pubkey = [0; 48];
        rng.fill(&mut pubkey);
        let mut withdrawal_credentials = [0; 32];
        rng.fill(&mut withdrawal_credentials[12..]);
        withdrawal_credentials[0] = 1;
        Validator {
            pubkey,
            withdrawal_credentials,
            effective_balance: 32 * ETH,
            slashed: rng.u16(..) == 0,
            activation_eligibility_epoch: epoch,
            activation_epoch: epoch + 5,
            exit_epoch: FAR_FUTURE_EPOCH,
            withdrawable_epoch: FAR_FUTURE_EPOCH,
        }
    };
    let all: Vec<Validator> = (0..validators).map(|_| validator()).collect();
    state.validators = all.try_into()?;
    let balances: Vec<u64> = (0..validators)
        .map(|_| 32 * ETH + rng.u64(..ETH / 20))
        .collect();
    state.balances = balances.try_into()?;
    state.previous_epoch_participation = vec![7; validators].try_into()?;
    state.current_epoch_participation = vec![3; validators].try_into()?;
    let scores: Vec<u64> = (0..validators).map(|_| rng.u64(..20) / 19).collect();
    state.inactivity_scores = scores.try_into()?;
    Ok(state.encode_ssz())
}
