#pragma once

#include <string_view>

namespace tenfold::codecs {

/// True if Python's unpickler could import something (by GLOBAL, INST or STACK_GLOBAL) when it
/// reads the consecutive pickles at the start of `bytes`. The check tracks only opcode boundaries
/// and the number of values on the stack. It continues wherever Python would, with one exception:
/// it stops at a GLOBAL or INST whose module name no real module has, such as one with blanks. In
/// bytes that are not a pickle, it usually stops after one or two opcodes.
bool may_import(std::string_view bytes);

}  // namespace tenfold::codecs
