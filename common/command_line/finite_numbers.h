// Refuses values of number options that are no number, which CLI11's checks of ranges let through.
//
// Called right after the command line was parsed; one thread.
#pragma once

#include <CLI/CLI.hpp>

namespace muster {

// Throws CLI::ValidationError for the first option of `app` and its subcommands whose value is NaN
// or infinite.
void CheckNumbersAreFinite(const CLI::App& app);

}  // namespace muster
