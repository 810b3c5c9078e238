#pragma once

#include <string_view>

namespace tenfold::codecs {

/// True if Python's unpickler could import something (by GLOBAL, INST or STACK_GLOBAL) when it
/// reads the consecutive pickles at the start of `bytes`. Only tracks opcode boundaries and the
/// number of values on the stack, so that the check continues wherever Python does. Exception: ends
/// at GLOBAL or INST with a module name that no module has in practice, such as one with blanks. In
/// bytes that are not a pickle, the check usually ends after one or two opcodes.
bool may_import(std::string_view bytes);

}  // namespace tenfold::codecs
