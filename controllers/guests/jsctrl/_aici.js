// The module "_aici", by the names that scripts of the original import from there.
export { TokenSet, Constraint, tokenize, detokenize, tokenRepr, tokensRepr, eosToken, selfSeqId, panic } from "aici";
export { getVar, setVar, appendVar, getConfig, regexConstraint, cfgConstraint, substrConstraint } from "aici";
import { inspect } from "aici";

export const stringToBuffer = (text) => text.toBuffer();
export const bufferToString = (bytes) => bytes.decode();
export const bufferRepr = (bytes) => inspect(bytes);
