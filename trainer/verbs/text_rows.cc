#include "trainer/verbs/text_rows.h"

#include <fstream>
#include <iostream>

#include "common/base/json.h"

namespace muster {

Status ForEachText(const std::string& file, const std::string& key,
                   const std::function<void(std::string)>& take) {
  std::ifstream opened;
  if (!file.empty()) {
    opened.open(file);
    if (!opened) return NotFound(file + ": cannot be opened");
  }
  std::istream& in = file.empty() ? std::cin : opened;
  std::string line;
  for (long number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains(key) || !row[key].is_string()) {
      return InvalidArgument((file.empty() ? "standard input" : file) + ":" +
                             std::to_string(number) + ": expected an object with \"" + key + "\"");
    }
    take(row[key].get<std::string>());
  }
  return OkStatus();
}

}  // namespace muster
