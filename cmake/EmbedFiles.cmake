# Run at build time (cmake -P): puts text files into a C++ source, as raw strings.
#   OUTPUT  the source; FILES  separated by commas; HEADER  that declares TYPE, of name and text, and
#   std::span<const TYPE> TYPEs(); NAMESPACE  of both
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
file(WRITE "${OUTPUT}.new" "// Made by cmake/EmbedFiles.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

${texts}
constexpr ${TYPE} kFiles[] = {
${entries}};

}  // namespace

std::span<const ${TYPE}> ${TYPE}s() { return kFiles; }

}  // namespace ${NAMESPACE}
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
