// LoadYaml: the text of a file that someone else wrote, as YAML of bounded size.
//
// Pure; any thread. For files that are read by MapReader (yaml_reader.h).
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct YamlKind {
  std::string name;  // in errors, after "a": "job file"
  int max_keys;      // of all maps together, as written; aliases count once
};

// The documents of `yaml`, 1 MiB at most. kInvalidArgument "FILE:LINE: what is wrong"; throws
// YAML::Exception where the text is no YAML.
Result<std::vector<YAML::Node>> LoadYaml(std::string_view yaml, const std::string& file,
                                         const YamlKind& kind);

}  // namespace muster
