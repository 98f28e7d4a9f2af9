// Stored secrets: whose there are, and which of them a job gets. Values are encrypted before they
// come here (coordinator/service/secret_vault.h).
//
// Free functions over the event under way (transaction.h), and over the State; private to
// coordinator/control; one thread.
#pragma once

#include <string_view>

#include "coordinator/control/transaction.h"

namespace muster::control {

inline constexpr std::size_t kMaxSecretsOfAnOwner = 256;

void On(Transaction& tx, const SecretSetRequested& request);
void On(Transaction& tx, const SecretRemoveRequested& request);
void On(Transaction& tx, const SecretsRewrapRequested& request);

// The owner's secret of the name in the queue, else in the nearest one above it; nullptr: none.
const SecretRecord* FindSecret(const State& state, const std::string& owner, std::string_view queue,
                               const std::string& name);

// OK if the owner has all secrets that the job names.
Status CheckSecrets(const State& state, const std::string& owner, const JobSpec& spec);

}  // namespace muster::control
