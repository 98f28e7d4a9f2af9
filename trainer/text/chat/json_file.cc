#include "trainer/text/chat/json_file.h"

#include <filesystem>

#include "common/base/files.h"

namespace muster {

Result<nlohmann::ordered_json> ReadJsonObject(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return NotFound("there is no " + path);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path + " is not valid JSON");
  if (!json.is_object())
    return InvalidArgument(path + " is a JSON " + json.type_name() + ", not an object");
  return json;
}

}  // namespace muster
