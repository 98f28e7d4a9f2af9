// HubId: the name of a model of the Hugging Face Hub, as job files and command lines give it in the
// place of a directory. Where a machine's cache keeps the model is trainer/hub/hub_id.h.
//
// Plain values and a pure function; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// Where models and data sets are fetched from unless HF_ENDPOINT names another place.
inline constexpr char kHubEndpoint[] = "https://huggingface.co";

struct HubId {
  std::string repo;               // ORG/NAME
  std::string revision = "main";  // branch, tag or commit

  friend bool operator==(const HubId&, const HubId&) = default;
};

// "ORG/NAME" or "ORG/NAME@REVISION". Nothing: it is no such name.
std::optional<HubId> ParseHubId(std::string_view text);

}  // namespace muster
