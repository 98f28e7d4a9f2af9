// AdapterOrigin: what a saved adapter belongs to.
//
// A job with adapters saves what it trains and no frozen weight. Such a state says something only
// over the weights over which it was trained, and at its own scale, so both are kept with it: in
// every shard's header, in the directory of a snapshot's segment, in a single-file state. States of
// whole models have none.
//
// Plain value and pure functions; any thread. docs/checkpoint-format.md has the keys.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

struct AdapterOrigin {
  std::string base_model;    // as PEFT finds it: a directory, or a name of the Hub
  std::string base_weights;  // FingerprintText (weights_fingerprint.h); empty: not known
  std::string form;          // AdapterFormText (adapter_form.h): a JSON object

  friend bool operator==(const AdapterOrigin&, const AdapterOrigin&) = default;
};

// {"base_model": "models/base", "base_weights": "xxh3:...", "form": {...}}. `form` is JSON.
std::string AdapterOriginToJson(const AdapterOrigin& origin);
// kDataLoss where it is not of that form.
Result<AdapterOrigin> AdapterOriginFromJson(std::string_view json);

}  // namespace muster
