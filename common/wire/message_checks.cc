#include "common/wire/message_checks.h"

#include "common/base/ids.h"
#include "common/wire/inventory_codec.h"

namespace muster {

Status CheckCounts(const v1::Hello& hello) {
  if (hello.slots() < 0 || hello.slots() > kMaxSlots) {
    return InvalidArgument("node " + hello.node() + " offers " + std::to_string(hello.slots()) +
                           " slots; 0 to " + std::to_string(kMaxSlots) + " are possible");
  }
  if (!hello.pilot().empty() && !FollowsNameRule(hello.pilot()))
    return InvalidArgument("node " + hello.node() + " names a pilot job that cannot be one");
  return CheckInventory(hello.inventory()).WithContext("node " + hello.node());
}

Status CheckJobId(const std::string& id) {
  constexpr char kAllowed[] = "0123456789abcdef";
  if (!id.empty() && id.size() <= 64 && id.find_first_not_of(kAllowed) == std::string::npos)
    return OkStatus();
  return InvalidArgument("job id '" + id.substr(0, 64) + "': not up to 64 hexadecimal digits");
}

}  // namespace muster
