// The files that the browser receives: coordinator/page/assets, which the build embeds in the
// program.
//
// Constant; any thread.
#pragma once

#include <span>
#include <string_view>

namespace muster {

struct PageAsset {
  std::string_view name;  // "page.css"
  std::string_view text;
};

std::span<const PageAsset> PageAssets();
// Aborts if there is none: names are literals.
const PageAsset& FindPageAsset(std::string_view name);

}  // namespace muster
