// The adapter in a saved state as PEFT's directory: what the job itself writes when it ends.
//
// A state knows the form of its adapter and the model that it adapts (AdapterOrigin); of that model
// only config.json and the tokenizer's files are read. Blocks on the disk; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "trainer/state/checkpoint/state_reader.h"

namespace muster {

struct AdapterExport {
  // The model: directory, or name of the Hub. Empty: where the job found it. What is named here is
  // also what adapter_config.json calls it.
  std::string model;
  std::string out;
};

// `state` has an origin. kNotFound where the model is not there, kFailedPrecondition where it has
// other weights than those over which the adapter was trained, or other shapes; kDataLoss for
// damage. Nothing is left then.
Status ExportAdapter(StateReader& state, const AdapterExport& options);

// Whether the state holds adapters, be its origin known or not.
bool HoldsAdapter(const StateReader& state);

}  // namespace muster
