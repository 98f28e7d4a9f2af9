// LoadYaml: the text of a file that someone else wrote, as YAML of bounded size.
//
// Pure; any thread. For files that are read by MapReader (yaml_reader.h).
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

struct YamlKind {
  std::string name;  // in errors, after "a": "job file"
  int max_keys;      // of all maps together, as written; aliases count once
};

// The one document of `yaml`, 1 MiB at most; null: it is empty. kInvalidArgument "FILE:LINE: what
// is wrong"; throws YAML::Exception where the text is no YAML.
Result<YAML::Node> LoadYaml(std::string_view yaml, const std::string& file, const YamlKind& kind);

}  // namespace muster
