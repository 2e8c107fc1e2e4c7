from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

ctypedef const uint8_t* Bytes

cdef extern from "_text.h" nogil:
    Bytes string_end "pp_string_end" (Bytes p, Bytes e) noexcept
    Bytes skip_blanks "pp_skip_blanks" (Bytes p, Bytes e) noexcept
    Bytes skip_separators "pp_skip_separators" (Bytes p, Bytes e) noexcept
    Bytes value_end "pp_value_end" (Bytes p, Bytes e, Bytes* after) noexcept
    uint64_t word "pp_word" (Bytes p) noexcept
    uint32_t half_word "pp_half_word" (Bytes p) noexcept
    int64_t number "pp_number" (Bytes p, Bytes e, int shift, int address, int64_t null) noexcept
    bint plain_number "pp_plain_number" (
        Bytes p, Bytes e, int places, int64_t* out, Bytes* after
    ) noexcept
