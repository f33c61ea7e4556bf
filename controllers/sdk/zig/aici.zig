//! The interface between a controller and the runtime, for Zig; `aici.h` describes every call.
//!
//! A controller is a struct with `init() Self` and `midProcess(*Self, fork_group) MidResult`; if it has `initPrompt`,
//! `preProcess` or `postProcess`, these are called too. `comptime { aici.expose(Controller); }` makes the exports, and
//! `pub const panic = aici.panic;` in the root file sends panics to the log.
const std = @import("std");

pub const Token = u32;
pub const allocator = std.heap.wasm_allocator;

pub const host = struct {
    pub extern "env" fn aici_host_read_blob(blob: u32, dst: ?[*]u8, size: u32) u32;
    pub extern "env" fn aici_host_token_trie() u32;
    pub extern "env" fn aici_host_module_arg() u32;
    pub extern "env" fn aici_host_process_arg() u32;
    pub extern "env" fn aici_host_tokens() u32;
    pub extern "env" fn aici_host_tokenize(src: [*]const u8, len: u32) u32;
    pub extern "env" fn aici_host_return_logit_bias(mask: [*]const u32) void;
    pub extern "env" fn aici_host_self_seq_id() u32;
    pub extern "env" fn aici_host_return_process_result(src: [*]const u8, len: u32) void;
    pub extern "env" fn aici_host_storage_cmd(src: [*]const u8, len: u32) u32;
    pub extern "env" fn aici_host_eos_token() u32;
    pub extern "env" fn aici_host_stop() void;
};

extern "wasi_snapshot_preview1" fn fd_write(fd: u32, vectors: *const IoVec, num_vectors: u32, written: *u32) u32;
const IoVec = extern struct { data: [*]const u8, len: u32 };

/// The decision before the next token: `num_forks` 0 stops, more than 1 forks; `ff_tokens` are appended without sampling.
pub const PreResult = struct { num_forks: u32 = 1, @"suspend": bool = false, ff_tokens: []const Token = &.{} };

/// The decision about the next token; or remove `backtrack` tokens, then append `ff_tokens`.
pub const MidResult = union(enum) {
    stop,
    sample: *const Mask,
    splice: struct { backtrack: u32, ff_tokens: []const Token },
};

/// One bit per token.
pub const Mask = struct {
    words: []u32,

    pub fn init() Mask {
        return .{ .words = allocator.alloc(u32, (vocabSize() + 31) / 32) catch fail("out of memory") };
    }
    pub fn clear(self: *Mask) void {
        @memset(self.words, 0);
    }
    pub fn allow(self: *Mask, token: Token) void {
        self.words[token / 32] |= @as(u32, 1) << @intCast(token % 32);
    }
};

pub fn vocabSize() u32 {
    var header: [7]u32 = undefined;
    _ = host.aici_host_read_blob(host.aici_host_token_trie(), @ptrCast(&header), @sizeOf(@TypeOf(header)));
    return header[5];
}

pub fn eosToken() Token {
    return host.aici_host_eos_token();
}

/// The argument of this controller, from the request.
pub fn moduleArg() []u8 {
    return readBlob(host.aici_host_module_arg());
}

/// The tokens of UTF-8 text, without special tokens.
pub fn tokenize(text: []const u8) []const Token {
    const blob = host.aici_host_tokenize(text.ptr, @intCast(text.len));
    const size = host.aici_host_read_blob(blob, null, 0);
    const tokens = allocator.alloc(Token, size / 4) catch fail("out of memory");
    _ = host.aici_host_read_blob(blob, @ptrCast(tokens.ptr), size);
    return tokens;
}

/// Appends to the log of this guest: end lines with \n.
pub fn print(comptime format: []const u8, arguments: anytype) void {
    log(std.fmt.allocPrint(allocator, format, arguments) catch fail("out of memory"));
}

/// Logs `why` and ends the guest with an error.
pub fn fail(why: []const u8) noreturn {
    log(why);
    log("\n");
    host.aici_host_stop();
    @trap();
}

pub const panic = std.debug.FullPanic(struct {
    fn panicked(message: []const u8, _: ?usize) noreturn {
        fail(message);
    }
}.panicked);

fn log(text: []const u8) void {
    const vector: IoVec = .{ .data = text.ptr, .len = @intCast(text.len) };
    var written: u32 = 0;
    _ = fd_write(1, &vector, 1, &written);
}

fn readBlob(blob: u32) []u8 {
    const size = host.aici_host_read_blob(blob, null, 0);
    const bytes = allocator.alloc(u8, size) catch fail("out of memory");
    _ = host.aici_host_read_blob(blob, bytes.ptr, size);
    return bytes;
}

/// Defines the exports of the interface around `Controller`. Each callback's memory is freed when it ends.
pub fn expose(comptime Controller: type) void {
    const Exports = struct {
        var controller: Controller = undefined;

        fn aici_init() callconv(.c) void {}
        fn aici_create() callconv(.c) u32 {
            controller = Controller.init();
            return 0;
        }
        fn aici_init_prompt(_: u32) callconv(.c) void {
            var arena = std.heap.ArenaAllocator.init(allocator);
            defer arena.deinit();
            const argument = parse(struct { prompt: []const Token }, arena.allocator());
            if (@hasDecl(Controller, "initPrompt")) controller.initPrompt(argument.prompt);
            giveBack("{}");
        }
        fn aici_pre_process(_: u32) callconv(.c) void {
            const result: PreResult = if (@hasDecl(Controller, "preProcess")) controller.preProcess() else .{};
            giveBackJson(result);
        }
        fn aici_mid_process(_: u32) callconv(.c) void {
            var arena = std.heap.ArenaAllocator.init(allocator);
            defer arena.deinit();
            const argument = parse(struct { fork_group: []const u32 }, arena.allocator());
            switch (controller.midProcess(argument.fork_group)) {
                .stop => giveBack("\"Stop\""),
                .sample => |mask| {
                    host.aici_host_return_logit_bias(mask.words.ptr);
                    giveBack("{\"SampleWithBias\":{}}");
                },
                .splice => |splice| giveBackJson(.{ .Splice = splice }),
            }
        }
        fn aici_post_process(_: u32) callconv(.c) void {
            var arena = std.heap.ArenaAllocator.init(allocator);
            defer arena.deinit();
            const argument = parse(struct { tokens: []const Token, backtrack: u32 = 0 }, arena.allocator());
            const stop = if (@hasDecl(Controller, "postProcess"))
                controller.postProcess(argument.tokens, argument.backtrack)
            else
                std.mem.indexOfScalar(Token, argument.tokens, eosToken()) != null;
            giveBackJson(.{ .stop = stop });
        }
        fn aici_panic() callconv(.c) void {
            @trap();
        }
    };
    const names = .{ "aici_init", "aici_create", "aici_init_prompt", "aici_pre_process", "aici_mid_process", "aici_post_process", "aici_panic" };
    inline for (names) |name| @export(&@field(Exports, name), .{ .name = name });
}

fn parse(comptime T: type, arena: std.mem.Allocator) T {
    const json = readBlob(host.aici_host_process_arg());
    defer allocator.free(json);
    const options: std.json.ParseOptions = .{ .ignore_unknown_fields = true, .allocate = .alloc_always };
    return std.json.parseFromSliceLeaky(T, arena, json, options) catch fail("the host's argument is not what it should be");
}

fn giveBack(json: []const u8) void {
    host.aici_host_return_process_result(json.ptr, @intCast(json.len));
}

fn giveBackJson(value: anytype) void {
    const json = std.json.Stringify.valueAlloc(allocator, value, .{}) catch fail("out of memory");
    defer allocator.free(json);
    giveBack(json);
}
