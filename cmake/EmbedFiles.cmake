# Run at build time (cmake -P): puts text files into a C++ source, as raw strings.
#   OUTPUT  the source; FILES  separated by commas
string(REPLACE "," ";" files "${FILES}")
set(texts "")
set(entries "")
set(number 0)
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(SIZE "${file}" bytes)
  file(READ "${file}" text)
  string(APPEND texts "constexpr char kText${number}[] = R\"embedded(${text})embedded\";
static_assert(sizeof kText${number} == ${bytes} + 1, \"all of ${name}\");\n")
  string(APPEND entries "    {\"${name}\", {kText${number}, ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}.new" "// Made of coordinator/page/assets by cmake/EmbedFiles.cmake.
#include \"coordinator/page/page_assets.h\"

namespace muster {
namespace {

${texts}
constexpr PageAsset kAssets[] = {
${entries}};

}  // namespace

std::span<const PageAsset> PageAssets() { return kAssets; }

}  // namespace muster
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
