//! The interface between a controller and the runtime; `aici.h` describes every call.

mod host {
    #[link(wasm_import_module = "env")]
    extern "C" {
        pub fn aici_host_read_blob(blob: u32, dst: *mut u8, size: u32) -> u32;
        pub fn aici_host_token_trie() -> u32;
        pub fn aici_host_module_arg() -> u32;
        pub fn aici_host_process_arg() -> u32;
        pub fn aici_host_tokenize(src: *const u8, len: u32) -> u32;
        pub fn aici_host_return_logit_bias(mask: *const u32);
        pub fn aici_host_return_process_result(src: *const u8, len: u32);
        pub fn aici_host_eos_token() -> u32;
        pub fn aici_host_stop();
    }
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    extern "C" {
        pub fn fd_write(fd: u32, vectors: *const [usize; 2], num_vectors: u32, written: *mut u32) -> u32;
    }
}

pub type Token = u32;

/// The decision before the next token: `num_forks` 0 stops, more than 1 forks; `ff_tokens` are appended without sampling.
pub struct PreResult {
    pub num_forks: u32,
    pub suspend: bool,
    pub ff_tokens: Vec<Token>,
}

impl PreResult {
    pub fn go_on() -> Self {
        Self::force(Vec::new())
    }
    pub fn force(ff_tokens: Vec<Token>) -> Self {
        Self { num_forks: 1, suspend: false, ff_tokens }
    }
}

/// The decision about the next token; or remove `backtrack` tokens, then append `ff_tokens`.
pub enum MidResult<'a> {
    Stop,
    Sample(&'a Mask),
    Splice { backtrack: u32, ff_tokens: Vec<Token> },
}

/// One bit per token.
pub struct Mask(Vec<u32>);

impl Mask {
    pub fn new() -> Self {
        Self(vec![0; (vocab_size() as usize + 31) / 32])
    }
    pub fn clear(&mut self) {
        self.0.fill(0);
    }
    pub fn allow(&mut self, token: Token) {
        self.0[token as usize / 32] |= 1 << (token % 32);
    }
}

pub trait Controller {
    fn init_prompt(&mut self, _prompt: &[Token]) {}
    fn pre_process(&mut self) -> PreResult {
        PreResult::go_on()
    }
    fn mid_process(&mut self, fork_group: &[u32]) -> MidResult<'_>;
    /// `tokens` were appended after `backtrack` tokens had been removed. Returns whether to stop.
    fn post_process(&mut self, tokens: &[Token], _backtrack: u32) -> bool {
        tokens.contains(&eos_token())
    }
}

fn read_blob(blob: u32) -> Vec<u8> {
    unsafe {
        let mut bytes = vec![0; host::aici_host_read_blob(blob, core::ptr::null_mut(), 0) as usize];
        host::aici_host_read_blob(blob, bytes.as_mut_ptr(), bytes.len() as u32);
        bytes
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

pub fn vocab_size() -> u32 {
    words(&read_blob(unsafe { host::aici_host_token_trie() })[..28])[5]
}

pub fn eos_token() -> Token {
    unsafe { host::aici_host_eos_token() }
}

/// The argument of this controller, from the request.
pub fn module_arg() -> String {
    String::from_utf8_lossy(&read_blob(unsafe { host::aici_host_module_arg() })).into_owned()
}

/// The tokens of a text, without special tokens.
pub fn tokenize(text: &str) -> Vec<Token> {
    words(&read_blob(unsafe { host::aici_host_tokenize(text.as_ptr(), text.len() as u32) }))
}

/// Appends a line to the log of this guest.
pub fn log(line: &str) {
    let text = format!("{line}\n");
    let vector = [text.as_ptr() as usize, text.len()];
    let mut written = 0;
    unsafe { host::fd_write(1, &vector, 1, &mut written) };
}

/// Logs `why` and ends the guest with an error.
pub fn fail(why: &str) -> ! {
    log(why);
    unsafe { host::aici_host_stop() };
    unreachable!()
}

/// Panics go to the log, too. Called by `expose!`.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(&panic.to_string())));
}

fn give_back(json: &str) {
    unsafe { host::aici_host_return_process_result(json.as_ptr(), json.len() as u32) };
}

/// The value of `key` in the argument of this callback: the runtime writes JSON without white space.
fn field(key: &str) -> Option<String> {
    let json = String::from_utf8_lossy(&read_blob(unsafe { host::aici_host_process_arg() })).into_owned();
    let start = json.find(&format!("\"{key}\":"))? + key.len() + 3;
    let rest = &json[start..];
    let end = if rest.starts_with('[') { rest.find(']')? } else { rest.find(|c| c == ',' || c == '}')? };
    Some(rest[..end].trim_start_matches('[').to_string())
}

fn numbers(key: &str) -> Vec<u32> {
    let list = field(key).unwrap_or_else(|| fail(&format!("the host's argument lacks {key}")));
    list.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

fn json_of(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("[{}]", texts.join(","))
}

pub fn run_init_prompt(controller: &mut dyn Controller) {
    controller.init_prompt(&numbers("prompt"));
    give_back("{}");
}

pub fn run_pre_process(controller: &mut dyn Controller) {
    let PreResult { num_forks, suspend, ff_tokens } = controller.pre_process();
    give_back(&format!("{{\"num_forks\":{num_forks},\"suspend\":{suspend},\"ff_tokens\":{}}}", json_of(&ff_tokens)));
}

pub fn run_mid_process(controller: &mut dyn Controller) {
    match controller.mid_process(&numbers("fork_group")) {
        MidResult::Stop => give_back("\"Stop\""),
        MidResult::Sample(mask) => {
            unsafe { host::aici_host_return_logit_bias(mask.0.as_ptr()) };
            give_back("{\"SampleWithBias\":{}}");
        }
        MidResult::Splice { backtrack, ff_tokens } => {
            let tokens = json_of(&ff_tokens);
            give_back(&format!("{{\"Splice\":{{\"backtrack\":{backtrack},\"ff_tokens\":{tokens}}}}}"));
        }
    }
}

pub fn run_post_process(controller: &mut dyn Controller) {
    let backtrack = field("backtrack").and_then(|number| number.parse().ok()).unwrap_or(0);
    let stop = controller.post_process(&numbers("tokens"), backtrack);
    give_back(&format!("{{\"stop\":{stop}}}"));
}

/// Defines the exports of the interface around a Controller made by `$make`. Use once, in the root of the crate.
#[macro_export]
macro_rules! expose {
    ($type:ty, $make:expr) => {
        #[no_mangle]
        pub extern "C" fn aici_init() {
            $crate::aici::log_panics();
        }
        #[no_mangle]
        pub extern "C" fn aici_create() -> usize {
            Box::into_raw(Box::<$type>::new($make)) as usize
        }
        #[no_mangle]
        pub unsafe extern "C" fn aici_init_prompt(controller: usize) {
            $crate::aici::run_init_prompt(&mut *(controller as *mut $type));
        }
        #[no_mangle]
        pub unsafe extern "C" fn aici_pre_process(controller: usize) {
            $crate::aici::run_pre_process(&mut *(controller as *mut $type));
        }
        #[no_mangle]
        pub unsafe extern "C" fn aici_mid_process(controller: usize) {
            $crate::aici::run_mid_process(&mut *(controller as *mut $type));
        }
        #[no_mangle]
        pub unsafe extern "C" fn aici_post_process(controller: usize) {
            $crate::aici::run_post_process(&mut *(controller as *mut $type));
        }
    };
}
