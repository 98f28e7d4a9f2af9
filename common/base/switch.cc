#include "common/base/switch.h"

#include "common/base/strings.h"

namespace muster {

Result<bool> ReadSwitch(std::string_view name, const char* value) {
  const std::string text = AsciiLower(value == nullptr ? "" : value);
  for (const char* on : {"1", "true", "yes", "on"}) {
    if (text == on) return true;
  }
  for (const char* off : {"", "0", "false", "no", "off"}) {
    if (text == off) return false;
  }
  return InvalidArgument(std::string(name) + "=" + value +
                         " is neither on nor off: set it to 1 or 0, or unset it");
}

}  // namespace muster
