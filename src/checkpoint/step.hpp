#pragma once

#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// Checks the document and all entries of the step at `path`.
VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options);

/// Throws Error(unsupported) for a step of more than one process.
void require_one_process(const Path& path, const CheckpointInfo& info);

/// The tree of a step: a dict whose top-level keys are the entries, opened lazily.
/// Throws as require_one_process() does.
TensorDict open_state(const Path& path, const CheckpointInfo& info);

/// The first problem of a report that has one, and how many more there are.
std::string first_problem(const VerifyReport& report);

}  // namespace tenfold::checkpoint
