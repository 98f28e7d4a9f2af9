#include "coordinator/page/page_assets.h"

#include <algorithm>

#include "common/base/check.h"

namespace muster {

const PageAsset& FindPageAsset(std::string_view name) {
  const auto assets = PageAssets();
  const auto found = std::find_if(assets.begin(), assets.end(),
                                  [&](const PageAsset& asset) { return asset.name == name; });
  MUSTER_CHECK(found != assets.end(), "every asset's name is a literal of this program");
  return *found;
}

}  // namespace muster
